// What happened in a run, line by line, and a hash over it.
import { createHash } from "node:crypto";

/** Takes the lines of one run. */
export class Trace {
  /** The lines, when they are kept. */
  readonly lines: string[] = [];
  readonly #hash = createHash("sha256");
  readonly #keep: boolean;

  /** @param keep Whether lines are kept besides being hashed. */
  constructor(keep: boolean) {
    this.#keep = keep;
  }

  /** Notes what happened, with the virtual time. */
  note(text: string): void {
    const line = `${Date.now().toString().padStart(7)} ${text}`;
    this.#hash.update(line).update("\n");
    if (this.#keep) this.lines.push(line);
  }

  /** The hash of all lines; the trace is closed. */
  close(): string {
    return this.#hash.digest("hex");
  }
}
