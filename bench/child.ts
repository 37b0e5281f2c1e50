/**
 * Child processes that talk in lines: started, listened to with a deadline, and never left behind.
 *
 * @module
 */

import { linesOf } from "./lines.ts";

/** What of a child's standard error is kept to explain a failure, in characters. */
const STDERR_KEPT = 20_000;

/** What of it a failure's message shows. */
const STDERR_SHOWN = 4_000;

/** How long a child may take to end by itself before it is killed, in milliseconds. */
const GRACE_MS = 5_000;

const living = new Set<Child>();

/** Kills every child that still lives, at once. For signal handlers and last resorts. */
export function killAllChildren(): void {
  for (const child of living) child.kill("SIGKILL");
}

/** How a child is started. */
export interface ChildOptions {
  /** A name for messages. */
  name: string;
  /** Program and arguments. */
  command: readonly string[];
  /** Environment on top of ours. */
  env?: Record<string, string>;
  /** Working directory; ours by default. */
  cwd?: string;
}

/** One child process whose standard output is lines and whose standard input takes lines. */
export class Child {
  /** The child's process id. */
  readonly pid: number;
  readonly #name: string;
  readonly #process: Deno.ChildProcess;
  readonly #lines: ReadableStreamDefaultReader<string>;
  readonly #stdin: WritableStreamDefaultWriter<Uint8Array<ArrayBufferLike>>;
  readonly #stderrRead: Promise<void>;
  #stderr = "";
  #ended = false;

  /**
   * Starts the child.
   *
   * @throws {Deno.errors.NotFound} When the program does not exist.
   */
  constructor(options: ChildOptions) {
    const [program = "", ...args] = options.command;
    this.#name = options.name;
    this.#process = new Deno.Command(program, {
      args,
      env: options.env ?? {},
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.pid = this.#process.pid;
    this.#lines = linesOf(this.#process.stdout);
    this.#stdin = this.#process.stdin.getWriter();
    this.#stderrRead = this.#readStderr();
    living.add(this);
    this.#process.status.then(() => {
      this.#ended = true;
      living.delete(this);
    });
  }

  async #readStderr(): Promise<void> {
    for await (const text of this.#process.stderr.pipeThrough(new TextDecoderStream())) {
      this.#stderr = (this.#stderr + text).slice(-STDERR_KEPT);
    }
  }

  /** The end of what the child wrote to its standard error. */
  get stderr(): string {
    return this.#stderr;
  }

  /**
   * The rest of the first line that starts with `prefix`; other lines are skipped.
   *
   * @throws {Error} When the child ends first, or the deadline passes.
   */
  async expect(prefix: string, timeoutMs: number): Promise<string> {
    const deadline = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      deadline.reject(this.#failure(`said no "${prefix.trim()}" within ${timeoutMs} ms`));
    }, timeoutMs);
    try {
      for (;;) {
        const { value, done } = await Promise.race([this.#lines.read(), deadline.promise]);
        if (done) {
          await this.#stderrRead;
          throw this.#failure(`ended before it said "${prefix.trim()}"`);
        }
        if (value.startsWith(prefix)) return value.slice(prefix.length).trim();
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends one line to the child. Fails silently when it has ended: the next expect says so. */
  async send(line: string): Promise<void> {
    await this.#stdin.write(new TextEncoder().encode(line + "\n")).catch(() => {});
  }

  /** Sends a signal; does nothing when the child has ended. */
  kill(signal: Deno.Signal): void {
    if (this.#ended) return;
    try {
      this.#process.kill(signal);
    } catch {
      // It ended in this very moment.
    }
  }

  /**
   * Waits until the child ends by itself, killing it after a grace period, and releases its streams.
   *
   * @returns Its exit code; 137 and the like when it was killed.
   */
  async finish(graceMs: number = GRACE_MS): Promise<number> {
    const timer = setTimeout(() => this.kill("SIGKILL"), graceMs);
    await this.#stdin.close().catch(() => {});
    while (!(await this.#lines.read()).done) { /* what it says at the end interests nobody */ }
    await this.#stderrRead;
    const status = await this.#process.status;
    clearTimeout(timer);
    return status.code;
  }

  /** Asks the child to end, then waits as {@link finish} does. */
  async stop(): Promise<number> {
    this.kill("SIGTERM");
    return await this.finish();
  }

  #failure(what: string): Error {
    const tail = this.#stderr.trim().slice(-STDERR_SHOWN);
    return new Error(
      `bench: the process "${this.#name}" ${what}` + (tail === "" ? "" : `; it wrote:\n${tail}`),
    );
  }
}

/** Whether a command exists and ends with exit code 0. */
export async function succeeds(command: readonly string[]): Promise<boolean> {
  try {
    return await new Child({ name: command.join(" "), command }).finish(60_000) === 0;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
