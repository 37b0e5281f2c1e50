/**
 * How few ranks a round may have, and how long the session waits for more.
 *
 * @module
 */

import { WireError } from "../wire/errors.ts";

/** What a session does next, as far as its numbers go. */
export type QuorumState = "enough" | "short" | "vacant";

/** What the session looks like. */
export interface Attendance {
  /** Ranks of hosts that take part, and those behind a frame that this round has. */
  readonly ranks: number;
  /** Whether the round has a frame, whose sender waits for the result. */
  readonly begun: boolean;
  /** Whether no host takes part. */
  readonly deserted: boolean;
  /** Whether somebody may come back: a relay that was lost, or one that stays for its ranks. */
  readonly hopeful: boolean;
}

/**
 * Purely synchronous.
 *
 *     enough --a round has begun, and ranks are too few--> short --they are enough again--> enough
 *        ^                                                   | too long: the session fails
 *        +--- a host takes part --- vacant <--nobody takes part, somebody may come back---+
 *                                     | too long, or nobody may come back: the session ends
 */
export class Quorum {
  /** The fewest ranks with which a round closes. */
  readonly least: number;
  readonly #waitMs: number;
  #state: QuorumState = "enough";
  #since = 0;

  /**
   * @param least At least 1.
   * @param waitMs How long to wait for more.
   */
  constructor(least: number, waitMs: number) {
    this.least = least;
    this.#waitMs = waitMs;
  }

  get state(): QuorumState {
    return this.#state;
  }

  /**
   * Looks at who is there.
   *
   * @param now In milliseconds.
   * @returns How long to wait at most until the next look; 0 when the time is up, Infinity when nobody is
   *   waited for.
   */
  look({ ranks, begun, deserted, hopeful }: Attendance, now: number): number {
    const state = begun && ranks < this.least ? "short" : deserted && !begun ? "vacant" : "enough";
    if (state !== this.#state) this.#since = now;
    this.#state = state;
    if (state === "enough") return Infinity;
    if (state === "vacant" && !hopeful) return 0;
    return Math.max(this.#since + this.#waitMs - now, 0);
  }

  /** Why the session fails when the time is up in a round that has begun. */
  failure(round: number, { ranks }: Attendance): WireError {
    return new WireError(
      "membership",
      "connection",
      `waiting in round ${round} for at least ${this.least} ranks: ${ranks} are there, and no more ` +
        `came within ${this.#waitMs} ms`,
    );
  }
}
