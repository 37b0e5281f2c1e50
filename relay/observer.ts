/**
 * What a relay tells those who watch it.
 *
 * @module
 */
import type { TimedRound } from "../serve/round_clock.ts";
import type { FrameHeader } from "../wire/round_frame.ts";

/** A host's sum that is on its way to the controller. */
export interface ShippedRound {
  /** Its number at this relay. */
  readonly round: number;
  /** The headers of the sum. */
  readonly header: FrameHeader;
  /** When its frames came. */
  readonly timed: TimedRound;
}

/** Watches a relay. What it is told is told at once and must not throw: rounds wait for it. */
export interface RelayObserver {
  /** Ranks can connect at this address. */
  listening(address: string): void;
  /** The controller at this address has taken the relay in. */
  connected(controller: string): void;
  /** The controller is lost. */
  disconnected(reason: string): void;
  /** A rank was let in. */
  rankJoined(rank: number, peer: string): void;
  /** The first byte of a rank's frame is there. */
  frameBegins(rank: number): void;
  /** A rank's frame of so many bytes is in. */
  delivered(rank: number, frameBytes: number): void;
  /** Values of a rank's frame were NaN or infinite, and count as 0. */
  replaced(rank: number, values: number): void;
  /** A rank is gone: `lost` unless it left of its own accord. */
  rankGone(rank: number, lost: boolean, reason: string): void;
  /**
   * A peer was refused, or is out for what it sent.
   *
   * @param rank Once it was let in.
   * @param nonfinite Whether for a value that is NaN or infinite.
   */
  refused(peer: string, rank: number | undefined, reason: string, nonfinite: boolean): void;
  /** These ranks have not delivered in time. */
  late(ranks: readonly number[], deadlineMs: number): void;
  /** The host's sum is on its way. */
  shipped(round: ShippedRound): void;
  /** The result is there, and goes to so many ranks. */
  closed(header: FrameHeader, receivers: number): void;
  /** The session is over; `error` unless every rank has left. */
  ended(error?: unknown): void;
}
