/**
 * The log lines about whoever was not let in, few enough that a flood of strangers does not fill a disk.
 *
 * @module
 */
import type { Logger } from "@logtape/logtape";

/** Lines at once, and how long until one more may be written, in milliseconds. */
const BURST = 50;
const EVERY_MS = 1_000;

/** Writes a line for each stranger, up to a rate; beyond it, the next line says how many it stands for. */
export class StrangerLog {
  readonly #log: Logger;
  #left = BURST;
  #at = 0;
  #unsaid = 0;

  constructor(log: Logger) {
    this.#log = log;
  }

  /**
   * A connection ended before its other end was let in.
   *
   * @param now In milliseconds, never backwards.
   */
  tell(peer: string, reason: string, now: number): void {
    this.#left = Math.min(BURST, this.#left + (now - this.#at) / EVERY_MS);
    this.#at = now;
    if (this.#left < 1) {
      this.#unsaid++;
      return;
    }
    this.#left--;
    const more = this.#unsaid === 0
      ? ""
      : `; before it ${this.#unsaid} more of which no line tells`;
    this.#unsaid = 0;
    this.#log.warn("a connection from {peer} ended: {reason}{more}", { peer, reason, more });
  }
}
