/**
 * Which rounds a bench makes, and how many of each.
 *
 * @module
 */

import type { RoundPlan } from "./contender.ts";

/** What to measure. */
export interface BenchPlan {
  /** Numbers of ranks. */
  ranks: readonly number[];
  /** f32 bytes per rank, ascending. */
  sizes: readonly number[];
  /** Interleaved runs of every row. */
  runs: number;
  /** How many rounds a run makes of a size. */
  rounds: (bytes: number) => RoundPlan;
  /** Seconds of one pass of the hash probe. */
  hashPassSeconds: number;
  /** When set, measurements that would end later than this are skipped by name, in milliseconds. */
  budgetMs?: number;
}

const KB = 1000;
const KIB = 1024;
const MIB = 1024 * KIB;

/** Everything the report shows. */
export const FULL: BenchPlan = {
  ranks: [1, 2, 4, 8],
  sizes: [4 * KB, 64 * KIB, 1 * MIB, 16 * MIB, 64 * MIB, 256 * MIB],
  runs: 3,
  rounds: roundPlan,
  hashPassSeconds: 0.3,
};

/** What a minute allows; the budget leaves time for the last processes to end. */
export const QUICK: BenchPlan = {
  ranks: [4],
  sizes: [4 * KB, 1 * MIB, 64 * MIB],
  runs: 1,
  rounds: (bytes) => {
    if (bytes > MIB) return { bytes, warm: 1, rounds: 5 };
    return bytes > 64 * KIB ? roundPlan(bytes) : { bytes, warm: 300, rounds: 300 };
  },
  hashPassSeconds: 0.1,
  budgetMs: 50_000,
};

/**
 * Small sizes need many rounds for a p99, and a second or two until the engines have optimised what they
 * run, which a training's first minute hides; large ones are steady: at least 9 after 2 warm-up ones.
 */
export function roundPlan(bytes: number): RoundPlan {
  if (bytes <= 64 * KIB) return { bytes, warm: 1_500, rounds: 500 };
  if (bytes <= MIB) return { bytes, warm: 100, rounds: 60 };
  if (bytes <= 16 * MIB) return { bytes, warm: 3, rounds: 15 };
  if (bytes <= 64 * MIB) return { bytes, warm: 2, rounds: 11 };
  return { bytes, warm: 2, rounds: 9 };
}

/** Interleaved runs of one size: rounds of 256 MiB take so long that two runs must do. */
export function runsOf(plan: BenchPlan, bytes: number): number {
  return bytes > 64 * MIB ? Math.min(plan.runs, 2) : plan.runs;
}
