/**
 * What a controller tells those who watch it.
 *
 * @module
 */
import type { RoundKind } from "../wire/round_frame.ts";

/** A relay, as watchers know it. */
export interface WatchedHost {
  /** The number by which hosts are ordered: the lowest rank of its first Hello. */
  readonly key: number;
  readonly name: string;
  /** The ranks that it carries, in no order. */
  readonly ranks: ReadonlySet<number>;
}

/** A round whose result is on its way. */
export interface WatchedRound {
  readonly round: number;
  readonly kind: RoundKind;
  /** Of all accepted frames together. */
  readonly mass: number;
  /** Keys of the hosts whose frames are in it. */
  readonly hosts: readonly number[];
  /** Keys of the hosts that get the result. */
  readonly receivers: readonly number[];
  /** Bytes of the result, framing included. */
  readonly bytes: number;
  /** The deadline that held for it, in milliseconds after its first frame. */
  readonly deadlineMs: number;
}

/** Watches a session. What it is told is told at once and must not throw: rounds wait for it. */
export interface SessionObserver {
  /** Relays can connect at this address. */
  listening(address: string): void;
  /** A relay at the address `peer` was taken in. */
  hostJoined(host: WatchedHost, peer: string): void;
  /** Ranks that had gone are back at their relay. */
  ranksReturned(host: WatchedHost, ranks: readonly number[]): void;
  /** The first byte of a host's frame is there. */
  frameBegins(host: WatchedHost): void;
  /**
   * A frame is in that holds the work of the host's ranks.
   *
   * @param bytes Framing included.
   */
  delivered(host: WatchedHost, bytes: number, mass: number): void;
  /** A relay says that a rank's connection is closed. */
  rankLeft(host: WatchedHost, rank: number): void;
  /** A relay's channel is closed, and these ranks are lost with it; none when all had left. */
  hostLeft(host: WatchedHost, lost: readonly number[], reason: string): void;
  /** Ranks that no relay claimed in time. */
  neverCame(ranks: readonly number[], reason: string): void;
  /** A peer was refused, or is out for what it sent; `host` once its Hello was taken. */
  refused(peer: string, host: WatchedHost | undefined, reason: string): void;
  /** A host has not delivered in time: its ranks are declared dead. */
  late(host: WatchedHost, deadlineMs: number): void;
  /** A round is folded and its result is on its way. */
  closed(round: WatchedRound): void;
  /** The session is over; `error` unless every rank has left. */
  ended(error?: unknown): void;
}
