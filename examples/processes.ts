/**
 * Child processes that live and die together.
 *
 * @module
 */

import { TextLineStream } from "@std/streams";
import { fileURLToPath } from "node:url";

/** How long a process may take to end after SIGTERM before it is killed, in milliseconds. */
const GRACE_MS = 2_000;

/** How long a server may take to accept connections, in milliseconds. */
const LISTEN_MS = 30_000;

/** Characters kept of what a process wrote to standard error: enough for its last words. */
const LAST_WORDS = 4_096;

/** A process of ours ended, or said something, that it should not have. */
export class ProcessError extends Error {
  override readonly name = "ProcessError";
}

/** What to start. */
export interface ProcessPlan {
  /** A name for messages. */
  readonly name: string;
  /** The module to run, as a `file:` URL. */
  readonly script: URL;
  /** What runs it when it is no module of Deno's, such as `python3`; permissions do not hold for it. */
  readonly interpreter?: string;
  /** Its permissions, such as `--allow-net=127.0.0.1`. */
  readonly permissions: readonly string[];
  /** Its arguments. */
  readonly args: readonly string[];
  /** Environment on top of ours; secrets go here, since arguments show in every process list. */
  readonly env?: Readonly<Record<string, string>>;
  /** Called with every line of standard output; when it throws, the group has failed. */
  readonly onLine?: (line: string) => void;
}

/** One running member of a group. */
export interface Process {
  readonly name: string;
  readonly pid: number;
  /** The `HOST:PORT` of its line `listening HOST:PORT`; rejects when that does not come in time. */
  listening(): Promise<string>;
  /** Resolves when it has ended well and all its lines were read; rejects when it ended badly. */
  readonly ended: Promise<void>;
}

/**
 * A group of processes.
 *
 * When one ends badly, `failed` rejects with its name and last words; whoever holds the group then
 * stops it. At the end of an `await using` block no process of the group is left, however it ends.
 */
export class ProcessGroup implements AsyncDisposable {
  readonly #members = new Set<Member>();
  readonly #failure = Promise.withResolvers<never>();
  #stopping = false;

  constructor() {
    this.#failure.promise.catch(() => {});
  }

  /** Never resolves; rejects with a {@link ProcessError} when the first member ends badly. */
  get failed(): Promise<never> {
    return this.#failure.promise;
  }

  /**
   * Starts a process: of the same Deno as this one, unless another interpreter is named.
   *
   * @throws {ProcessError} when the group is being stopped.
   */
  start(plan: ProcessPlan): Process {
    if (this.#stopping) throw new ProcessError(`starting ${plan.name}: the group is being stopped`);
    const member = new Member(plan);
    this.#members.add(member);
    member.ended
      .catch((error) => this.#stopping || this.#failure.reject(error))
      .finally(() => this.#members.delete(member));
    return member;
  }

  /** Asks every member to end, kills those that do not within two seconds, and waits for all. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const members = [...this.#members];
    for (const member of members) member.kill("SIGTERM");
    const timer = setTimeout(() => members.forEach((member) => member.kill("SIGKILL")), GRACE_MS);
    await Promise.allSettled(members.map((member) => member.ended));
    clearTimeout(timer);
  }

  /** Stops the group; see {@link stop}. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

class Member implements Process {
  readonly name: string;
  readonly pid: number;
  readonly ended: Promise<void>;
  readonly #process: Deno.ChildProcess;
  readonly #address = Promise.withResolvers<string>();
  readonly #onLine: ((line: string) => void) | undefined;
  #lastWords = "";

  constructor({ name, script, interpreter, permissions, args, env = {}, onLine }: ProcessPlan) {
    this.name = name;
    this.#onLine = onLine;
    this.#address.promise.catch(() => {});
    const [program, ...before] = interpreter === undefined
      ? [Deno.execPath(), "run", "--quiet", "--no-prompt", ...permissions, script.href]
      : [interpreter, fileURLToPath(script)];
    this.#process = new Deno.Command(program, {
      args: [...before, ...args],
      env: { ...env },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    this.pid = this.#process.pid;
    this.ended = this.#untilEnd();
    this.ended.catch((error) => this.#address.reject(error));
  }

  async listening(): Promise<string> {
    const timer = setTimeout(
      () =>
        this.#address.reject(
          new ProcessError(`${this.name} did not say where it listens within ${LISTEN_MS} ms`),
        ),
      LISTEN_MS,
    );
    try {
      return await this.#address.promise;
    } finally {
      clearTimeout(timer);
    }
  }

  kill(signal: Deno.Signal): void {
    try {
      this.#process.kill(signal);
    } catch {
      // It has ended already.
    }
  }

  async #untilEnd(): Promise<void> {
    const [output, , status] = await Promise.allSettled([
      this.#readOutput(),
      this.#readErrors(),
      this.#process.status,
    ]);
    if (output.status === "rejected") throw output.reason;
    if (status.status === "rejected") throw status.reason;
    const { success, code, signal } = status.value;
    if (success) {
      this.#address.reject(new ProcessError(`${this.name} ended before it listened`));
      return;
    }
    const how = signal === null ? `with exit code ${code}` : `by ${signal}`;
    const words = this.#lastWords.trim();
    throw new ProcessError(
      `${this.name} ended ${how}${words === "" ? "" : `; it said:\n${words}`}`,
    );
  }

  async #readOutput(): Promise<void> {
    const toLines: TransformStream<string, string> = new TextLineStream();
    const lines = this.#process.stdout.pipeThrough(new TextDecoderStream()).pipeThrough(toLines);
    try {
      for await (const line of lines) {
        const prefix = "listening ";
        if (line.startsWith(prefix)) this.#address.resolve(line.slice(prefix.length).trim());
        this.#onLine?.(line);
      }
    } catch (error) {
      // Nobody reads on, so it would block on a full pipe.
      this.kill("SIGKILL");
      throw error;
    }
  }

  async #readErrors(): Promise<void> {
    for await (const text of this.#process.stderr.pipeThrough(new TextDecoderStream())) {
      this.#lastWords = (this.#lastWords + text).slice(-LAST_WORDS);
    }
  }
}
