/**
 * Local training on one shard, the same whether its result is averaged with others or not.
 *
 * @module
 */

import type { RandomGenerator } from "pure-rand/types/RandomGenerator";
import { type Digits, pick, seeded, shuffle } from "./data.ts";
import type { DigitsModel } from "./model.ts";

/** Digits a step. */
const BATCH = 16;

/** Steps that the rank with the most digits makes between two averagings. */
const STEPS = 10;

/** SGD's learning rate. */
export const LEARNING_RATE = 0.3;

/**
 * Steps between two averagings, per rank: in proportion to its digits, so that every rank passes over
 * its shard equally often, and at least one.
 *
 * @param sizes Digits per rank.
 */
export function stepsPerRound(sizes: Iterable<number>): number[] {
  const counts = [...sizes];
  const most = Math.max(...counts);
  return counts.map((count) => Math.max(1, Math.round(STEPS * count / most)));
}

/** SGD over a shard in shuffled passes, without end. */
export class LocalTrainer {
  readonly #model: DigitsModel;
  readonly #train: Digits;
  readonly #shard: Uint32Array;
  readonly #batch: number;
  readonly #random: RandomGenerator;
  #next = 0;

  /**
   * @param shard Indices into `train`; not empty.
   * @param seeds Decide the order of the digits.
   */
  constructor(
    model: DigitsModel,
    train: Digits,
    shard: Uint32Array,
    ...seeds: readonly number[]
  ) {
    if (shard.length === 0) throw new RangeError("training on a shard without digits");
    this.#model = model;
    this.#train = train;
    this.#random = seeded(...seeds);
    this.#shard = shuffle(shard.slice(), this.#random);
    this.#batch = Math.min(BATCH, shard.length);
  }

  /** Makes `steps` steps (at least one); returns their mean loss. */
  async run(steps: number): Promise<number> {
    let loss = 0;
    for (let step = 0; step < steps; step++) loss += await this.#model.step(this.#nextBatch());
    return loss / steps;
  }

  #nextBatch(): Digits {
    if (this.#next + this.#batch > this.#shard.length) {
      shuffle(this.#shard, this.#random);
      this.#next = 0;
    }
    const from = this.#next;
    this.#next += this.#batch;
    return pick(this.#train, this.#shard.subarray(from, this.#next));
  }
}
