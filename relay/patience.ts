/**
 * Waiting for ranks: for one that is to go, and for those that are to come.
 *
 * @module
 */

/** Waits until `promise` settles, at most that long. */
export async function settledWithin(promise: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => timer = setTimeout(resolve, ms));
  await Promise.race([promise, late]);
  clearTimeout(timer);
}

/** Whether a relay in which nobody is left waits for somebody. */
export class Hope {
  readonly #lost: () => void;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param lost Told when nobody came in time. */
  constructor(lost: () => void) {
    this.#lost = lost;
  }

  /** Whether it waits. */
  get alive(): boolean {
    return this.#timer !== undefined;
  }

  /** Nobody can come any more. */
  end(): void {
    this.renew(0);
    this.#lost();
  }

  /** Waits anew, for that long; with 0 it waits for nobody. */
  renew(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = ms === 0 ? undefined : setTimeout(() => {
      this.#timer = undefined;
      this.#lost();
    }, ms);
  }
}
