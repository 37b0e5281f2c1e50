/**
 * One figure per round out of what each rank says of it.
 *
 * @module
 */

import type { RoundReport } from "./report.ts";

/** A round, as seen from outside. */
export interface RoundSummary {
  /** From 1. */
  readonly round: number;
  /** Training loss before averaging, weighted by the ranks' steps. */
  readonly loss: number;
  /** The slowest rank's round, in milliseconds. */
  readonly roundMs: number;
  /** Averaging as the last rank to arrive saw it, so without waiting for others, in milliseconds. */
  readonly averageMs: number;
  /** Bytes that all ranks together sent to their relays. */
  readonly bytesUp: number;
}

/** Gathers reports until a round is complete. */
export class RoundBoard {
  readonly #ranks: number;
  readonly #open = new Map<number, RoundReport[]>();

  /** @param ranks How many ranks report every round. */
  constructor(ranks: number) {
    this.#ranks = ranks;
  }

  /** Takes one rank's report; returns the round's summary when it was the last one missing. */
  add(report: RoundReport): RoundSummary | undefined {
    const reports = [...this.#open.get(report.round) ?? [], report];
    this.#open.set(report.round, reports);
    if (reports.length < this.#ranks) return undefined;
    this.#open.delete(report.round);
    const steps = reports.reduce((sum, each) => sum + each.steps, 0);
    return {
      round: report.round,
      loss: reports.reduce((sum, each) => sum + each.loss * each.steps, 0) / steps,
      roundMs: Math.max(...reports.map((each) => each.roundMs)),
      averageMs: Math.min(...reports.map((each) => each.averageMs)),
      bytesUp: reports.reduce((sum, each) => sum + each.bytesUp, 0),
    };
  }
}
