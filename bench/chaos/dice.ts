/**
 * Chance from a seed.
 *
 * @module
 */
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** Draws numbers; the same seed draws the same ones. */
export class Dice {
  readonly #generator;

  /** Takes the seed, an integer. */
  constructor(seed: number) {
    this.#generator = xoroshiro128plus(seed);
  }

  /** An integer from 0 to below `limit`. */
  upTo(limit: number): number {
    return limit <= 1 ? 0 : uniformInt(this.#generator, 0, limit - 1);
  }

  /** One of some. */
  of<T>(all: readonly T[]): T {
    return all[this.upTo(all.length)]!;
  }

  /** All of them, in some order. */
  shuffled<T>(all: readonly T[]): T[] {
    const rest = [...all];
    return all.map(() => rest.splice(this.upTo(rest.length), 1)[0]!);
  }
}
