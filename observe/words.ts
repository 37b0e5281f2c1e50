/**
 * Numbers and ranks as the state shows them.
 *
 * @module
 */
import { formatRanks } from "../cli/values.ts";

/** Ranks in ascending order. */
export function ascending(ranks: Iterable<number>): number[] {
  return [...ranks].sort((a, b) => a - b);
}

/** Milliseconds to the microsecond, which is what clocks give. */
export function short(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

/** Ranks in a sentence: `rank 3`, `ranks 0-2,7`. */
export function theRanks(ranks: readonly number[]): string {
  return `${ranks.length === 1 ? "rank" : "ranks"} ${formatRanks(ascending(ranks))}`;
}
