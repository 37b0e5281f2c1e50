/**
 * Gives timers and other connections their turn while large frames keep the loop busy: awaiting reads
 * of an always-ready socket alone starves them.
 *
 * @module
 */
import { setImmediate } from "node:timers";

/** How long one task may hold the loop, in milliseconds. */
const SLICE_MS = 8;

/** Remembers when the loop last turned, for one task that works through a lot of bytes. */
export class Breather {
  #since = performance.now();

  /** Lets the loop turn once when this task has held it for long enough; costs nothing otherwise. */
  breathe(): Promise<void> | undefined {
    if (performance.now() - this.#since < SLICE_MS) return undefined;
    return new Promise((resolve) =>
      setImmediate(() => {
        this.#since = performance.now();
        resolve();
      })
    );
  }
}
