// Choices that follow from a seed.
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** A stream of choices. */
export class Random {
  readonly #generator;

  /** @param parts Numbers that make the stream; others make another one. */
  constructor(...parts: readonly number[]) {
    let mixed = 0x9e3779b9;
    for (const part of parts) {
      mixed = Math.imul(mixed ^ part, 0x85ebca6b);
      mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
      mixed ^= mixed >>> 16;
    }
    this.#generator = xoroshiro128plus(mixed);
  }

  /** A whole number from `from` to `to`, both included. */
  int(from: number, to: number): number {
    return uniformInt(this.#generator, from, to);
  }

  /** True in `share` of all cases. */
  chance(share: number): boolean {
    return this.int(0, 999_999) < share * 1e6;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.int(0, from.length - 1)]!;
  }

  /** The same items in any order. */
  shuffled<T>(items: readonly T[]): T[] {
    const all = [...items];
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.int(0, i);
      [all[i], all[j]] = [all[j]!, all[i]!];
    }
    return all;
  }
}
