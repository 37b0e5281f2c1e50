/**
 * What ranks give in a chaos run, so that a result proves itself.
 *
 * Rank r gives mass 2^r, so that a round's mass names exactly the ranks that are in it. Its tensor is cut
 * into a block for each rank; it fills its own with a count that it never uses twice, and the others with
 * zeros. All sums are integers below 2^24, which f32 holds exactly: the only rounding is that of the
 * root's f32(1 / W), which is repeated here. So every bit of every result is known once the counts of
 * the ranks in it are, and a frame that is counted twice, late, in part or for another rank shows.
 *
 * @module
 */

/** Ranks of a chaos cluster. */
export const WORLD = 4;

/** Above this a count times the largest mass would leave the integers of f32. */
export const MAX_COUNT = 2 ** 24 / 2 ** (WORLD - 1) - 1;

/** The mass that a rank gives. */
export const massOf = (rank: number): number => 2 ** rank;

/** Fills a rank's tensor for its next round. */
export function fill(data: Float32Array, rank: number, count: number): void {
  const block = data.length / WORLD;
  data.fill(0);
  data.fill(count, rank * block, (rank + 1) * block);
}

/** What a result says: the counts of the ranks in it, by rank; undefined for those that are not. */
export type Counts = readonly (number | undefined)[];

/** The value of a block whose rank gave `count`, in a round of mass `mass`. */
function expected(rank: number, count: number, mass: number): number {
  return Math.fround(Math.fround(count * massOf(rank)) * Math.fround(1 / mass));
}

/**
 * Reads a result and checks every bit of it.
 *
 * @param own The rank that received it, and the count that it gave; left out for a checkpoint.
 * @returns The counts, or what is wrong.
 */
export function readResult(
  data: Float32Array,
  mass: number,
  own?: { readonly rank: number; readonly count: number },
): Counts | string {
  if (!Number.isInteger(mass) || mass < 1 || mass >= 2 ** WORLD) return `a mass of ${mass}`;
  const block = data.length / WORLD;
  const counts: (number | undefined)[] = [];
  for (let rank = 0; rank < WORLD; rank++) {
    const held = (mass & massOf(rank)) !== 0;
    const value = data[rank * block]!;
    const count = held ? Math.round(value * mass / massOf(rank)) : 0;
    const wanted = held ? expected(rank, count, mass) : 0;
    for (let i = rank * block; i < (rank + 1) * block; i++) {
      if (data[i] === wanted) continue;
      return `value ${i}, of rank ${rank}'s block, is ${data[i]} in a round of mass ${mass}, ` +
        `expected ${wanted}`;
    }
    if (held && count < 1) return `rank ${rank} is in the mass ${mass} but gave ${count}`;
    counts.push(held ? count : undefined);
  }
  if (own === undefined) return counts;
  const mine = counts[own.rank];
  if (mine !== own.count) return `rank ${own.rank} gave ${own.count}, the result has ${mine}`;
  return counts;
}
