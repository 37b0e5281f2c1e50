/**
 * Losses that ranks report.
 *
 * @module
 */
import { type LossView, STATE_LIMITS } from "../../observe/state.ts";
import { Recent } from "../../observe/recent.ts";

/** The newest losses of all ranks. Purely synchronous; time comes in with what is reported. */
export class LossBoard {
  readonly #worldSize: number;
  readonly #recent = new Recent<LossView>(STATE_LIMITS.losses);
  readonly #last = new Map<number, number>();

  /** @param worldSize How many ranks there are: no others are taken. */
  constructor(worldSize: number) {
    this.#worldSize = worldSize;
  }

  /** The newest ones, oldest first, and how many there were. */
  get recent(): Recent<LossView> {
    return this.#recent;
  }

  /**
   * Takes a loss down.
   *
   * @throws {RangeError} when the rank is not of this session, or a number is not usable.
   */
  report({ rank, step, loss, atMs }: LossView): void {
    if (!(Number.isInteger(rank) && rank >= 0 && rank < this.#worldSize)) {
      throw new RangeError(`rank ${rank} is not one of this session's ${this.#worldSize} ranks`);
    }
    if (!(Number.isSafeInteger(step) && step >= 0)) {
      throw new RangeError(`step ${step} of rank ${rank} is not a whole number from 0 on`);
    }
    if (!Number.isFinite(loss)) {
      throw new RangeError(`the loss of rank ${rank} at step ${step} is ${loss}, not finite`);
    }
    this.#recent.add({ rank, step, loss, atMs });
    this.#last.set(rank, loss);
  }

  /** The last loss of a rank; null before the first one. */
  last(rank: number): number | null {
    return this.#last.get(rank) ?? null;
  }
}
