/**
 * Progress on standard output: one line redrawn in place on a terminal, plain lines otherwise.
 *
 * @module
 */

/** Back to the line's start, and wipe it. */
const WIPE = "\r\x1b[2K";

/** A line that says how far things are. */
export class LiveLine {
  readonly #terminal = Deno.stdout.isTerminal();
  #open = false;

  /** Shows `text` in place of what was shown before; below it where output is no terminal. */
  show(text: string): void {
    if (!this.#terminal) {
      console.log(text);
      return;
    }
    // A line that wraps could not be wiped; a terminal without a size says 0.
    write(WIPE + text.slice(0, (Deno.consoleSize().columns || 80) - 1));
    this.#open = true;
  }

  /** Leaves what is shown where it is; what is printed next starts a new line. */
  keep(): void {
    if (this.#open) write("\n");
    this.#open = false;
  }
}

function write(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text));
}
