/**
 * What a controller tells of its rounds, and what it asks.
 *
 * @module
 */
import type { FoldStep } from "../fold/frame_fold.ts";
import type { FrameSlot } from "../frames/slot.ts";
import type { FrameHeader } from "../wire/round_frame.ts";

/** A round that closed. */
export interface ClosedRound {
  /** Its number, from 0. */
  readonly round: number;
  /** The result's headers. */
  readonly header: FrameHeader;
  /** Where the result lies; unchanged until `closed` has settled. */
  readonly out: FrameSlot;
  /** The hosts whose frames were accepted, ascending. */
  readonly hosts: readonly number[];
  /** Settles when the result has left. */
  readonly sent: Promise<unknown>;
}

/** Ranks that are gone. */
export interface GoneRanks {
  readonly round: number;
  /** Their host's name; undefined when none ever carried them. */
  readonly host: string | undefined;
  readonly ranks: readonly number[];
  /** Whether they were lost rather than left of their own accord. */
  readonly lost: boolean;
  readonly reason: string;
}

/** Takes part in a controller's rounds. One round at a time. */
export interface RoundHooks {
  /** Whether results must stay f32. */
  readonly wide: boolean;

  /**
   * A host's frame is in.
   *
   * @param key The number by which hosts are ordered.
   * @param ranks The ranks behind the frame.
   */
  delivered(key: number, name: string, ranks: Iterable<number>, mass: number): void;

  /**
   * A round is about to be folded.
   *
   * @param header The headers of one of its frames.
   * @param mass That of all its frames.
   * @returns What to do to the result.
   */
  folding(header: FrameHeader, mass: number): Promise<FoldStep | undefined>;

  /**
   * A round's result is on its way.
   *
   * @returns The slot to fold into from here on.
   */
  closed(round: ClosedRound): Promise<FrameSlot>;

  /** Ranks are gone. */
  gone(ranks: GoneRanks): void;
}
