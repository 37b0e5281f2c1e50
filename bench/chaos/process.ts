/**
 * A process of a chaos run: told apart by what it says on both its outputs, ended in any way.
 *
 * @module
 */
import { linesOf } from "../lines.ts";

/** What to start. */
export interface ProcessPlan {
  /** A name for messages. */
  readonly name: string;
  /** The module to run, from the repository's root. */
  readonly script: string;
  /** What it may do. */
  readonly permissions: readonly string[];
  /** Its arguments. */
  readonly args: readonly string[];
  /** The session salt, hex. */
  readonly salt: string;
  /** Called with every line of its standard output. */
  readonly onLine: (line: string) => void;
  /** Called with every line of its log. */
  readonly onLog?: (line: string) => void;
}

/** Lines of a log that are kept for the report of a failure. */
const KEPT_LINES = 40;

/** One running process. */
export class ChaosProcess {
  /** Its name. */
  readonly name: string;
  /** Settles with its exit code once it has ended and its last line was read. */
  readonly ended: Promise<number>;
  /** The end of its log. */
  readonly log: string[] = [];
  readonly #child: Deno.ChildProcess;
  #over = false;

  /** Starts it. */
  constructor({ name, script, permissions, args, salt, onLine, onLog }: ProcessPlan) {
    this.name = name;
    this.#child = new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--quiet", "--no-prompt", ...permissions],
        new URL(`../../${script}`, import.meta.url).pathname,
        ...args,
      ],
      env: { TIERFOLD_SALT: salt, NO_COLOR: "1" },
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    const read = Promise.all([
      each(this.#child.stdout, onLine),
      each(this.#child.stderr, (line) => {
        this.log.push(line);
        if (this.log.length > KEPT_LINES) this.log.shift();
        onLog?.(line);
      }),
    ]);
    this.ended = this.#child.status.then(async ({ code }) => {
      this.#over = true;
      await this.#child.stdin.close().catch(() => {});
      await read;
      return code;
    });
  }

  /** Its process id. */
  get pid(): number {
    return this.#child.pid;
  }

  /** Sends it a signal, unless it has ended. */
  kill(signal: Deno.Signal): void {
    if (this.#over) return;
    try {
      this.#child.kill(signal);
    } catch {
      // It ended in this very moment.
    }
  }

  /** Tells it to end by closing its standard input. */
  async closeInput(): Promise<void> {
    await this.#child.stdin.close().catch(() => {});
  }
}

async function each(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  what: (line: string) => void,
): Promise<void> {
  const lines = linesOf(stream);
  for (;;) {
    const { value, done } = await lines.read();
    if (done) return;
    what(value);
  }
}
