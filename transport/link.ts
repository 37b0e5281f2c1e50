/**
 * Whole reads, whole writes and deadlines over a {@link Connection}.
 *
 * @module
 */
import { Breather } from "./breather.ts";
import { type Connection, TransportError } from "./connection.ts";

/**
 * Short reads take so much at once: a small frame then comes with its prefix in one system call. Longer
 * reads go straight to where they belong.
 */
const AHEAD_BYTES = 16 * 1024;

/**
 * One end of a connection. Reads and writes are independent of each other; of each kind at most one is
 * under way, which its callers see to.
 */
export class Link {
  readonly #connection: Connection;
  readonly #buffer = new Uint8Array(AHEAD_BYTES);
  /** What was read and not asked for yet, a part of the buffer. */
  #ahead = this.#buffer.subarray(0, 0);
  /** Why this end was closed, once it is. */
  #ended: TransportError | undefined;
  /** Settles when the last word was said, once that has begun. */
  #parting: Promise<void> | undefined;
  /** Bytes read so far. */
  bytesIn = 0;
  /** Bytes written so far. */
  bytesOut = 0;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The other end, as errors and logs name it. */
  get peer(): string {
    return this.#connection.peer;
  }

  /** Whether this end was closed. */
  get ended(): boolean {
    return this.#ended !== undefined;
  }

  /** Settles when this end is closed after its last word; undefined while none is being said. */
  get parting(): Promise<void> | undefined {
    return this.#parting;
  }

  /**
   * Reads what is there, at least one byte.
   *
   * @param what What is being read, for errors.
   * @returns The number of bytes, or null at the end of the stream.
   * @throws {TransportError} when the connection breaks, or this end is closed or being closed.
   */
  async readSome(into: Uint8Array, what: string): Promise<number | null> {
    this.#expectStaying();
    if (this.#ahead.length === 0) {
      const short = into.length < AHEAD_BYTES;
      const count = await this.#read(short ? this.#buffer : into, what);
      this.#expectStaying();
      if (count === null || !short) return count;
      this.#ahead = this.#buffer.subarray(0, count);
    }
    const count = Math.min(into.length, this.#ahead.length);
    into.set(this.#ahead.subarray(0, count));
    this.#ahead = this.#ahead.subarray(count);
    return count;
  }

  async #read(into: Uint8Array, what: string): Promise<number | null> {
    if (this.#ended) throw this.#ended;
    let count: number | null;
    try {
      count = await this.#connection.read(into);
    } catch (cause) {
      throw this.#broken(`reading ${what} from ${this.peer}`, cause);
    }
    // Closing our own end makes some reads report the end of the stream.
    if (this.#ended) throw this.#ended;
    if (count !== null) this.bytesIn += count;
    return count;
  }

  /**
   * Reads until `into` is full.
   *
   * @param what What is being read, for errors.
   * @returns False when the stream ended cleanly before the first byte.
   * @throws {TransportError} when it ends later, breaks, or this end is closed.
   */
  async readFully(into: Uint8Array, what: string): Promise<boolean> {
    let have = 0;
    while (have < into.length) {
      const count = await this.readSome(have === 0 ? into : into.subarray(have), what);
      if (count === null) {
        if (have === 0) return false;
        throw new TransportError(
          "closed",
          `reading ${what} from ${this.peer}: the stream ended after ${have} of ${into.length} bytes`,
        );
      }
      have += count;
    }
    return true;
  }

  /**
   * Writes all of `bytes`.
   *
   * @param what What is being written, for errors.
   * @throws {TransportError} when the connection breaks, or this end is closed or being closed.
   */
  async writeFully(bytes: Uint8Array, what: string): Promise<void> {
    const breather = new Breather();
    let done = 0;
    while (done < bytes.length) {
      this.#expectStaying();
      done += await this.#write(bytes, done, what);
      // An always-ready socket would starve timers here as well.
      const turn = breather.breathe();
      if (turn !== undefined) await turn;
    }
  }

  async #write(bytes: Uint8Array, done: number, what: string): Promise<number> {
    if (this.#ended) throw this.#ended;
    try {
      const count = await this.#connection.write(done === 0 ? bytes : bytes.subarray(done));
      this.bytesOut += count;
      return count;
    } catch (cause) {
      throw this.#broken(
        `writing ${what} to ${this.peer}, ${done} of ${bytes.length} bytes written`,
        cause,
      );
    }
  }

  /**
   * Runs `action`, and closes this end when it takes longer than `ms`.
   *
   * @param what What is being waited for, for the error.
   * @throws {TransportError} with code "deadline" when the time passed, else what `action` throws.
   */
  async within<T>(ms: number, what: string, action: () => Promise<T>): Promise<T> {
    const timer = setTimeout(() => {
      this.close(
        new TransportError("deadline", `${what}: ${this.peer} took longer than ${ms} ms`),
      );
    }, ms);
    try {
      return await action();
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Says a last word and closes; all other reads and writes fail from here on, those under way when they
   * settle. The other end may be in
   * the middle of writing: what it still sends is read and thrown away for a while, since closing with
   * unread bytes would destroy the last word on its way. Never throws; only the first call counts.
   *
   * @param bytes The last word.
   * @param ms How long to wait for the other end to close.
   */
  closeAfter(bytes: Uint8Array, ms: number): Promise<void> {
    return this.#parting ??= this.#part(bytes, ms);
  }

  async #part(bytes: Uint8Array, ms: number): Promise<void> {
    try {
      await this.within(ms, "closing", async () => {
        let done = 0;
        while (done < bytes.length) {
          done += await this.#write(bytes, done, "the reason for closing");
        }
        await this.#connection.closeWrite();
        const sink = new Uint8Array(65_536);
        while (await this.#read(sink, "what is left") !== null);
      });
    } catch (error) {
      if (!(error instanceof Error)) throw error;
    } finally {
      this.close();
    }
  }

  /** Says that the other end has said who it is: limits on strangers no longer count for it. */
  welcome(): void {
    this.#connection.welcome?.();
  }

  /** Closes this end; pending reads and writes fail with `reason`. Further calls do nothing. */
  close(reason?: TransportError): void {
    if (this.#ended) return;
    this.#ended = reason ??
      new TransportError("ended", `the connection with ${this.peer} was closed here`);
    this.#connection.close();
  }

  #expectStaying(): void {
    if (this.#parting !== undefined) {
      throw this.#ended ??
        new TransportError("ended", `the connection with ${this.peer} is being closed here`);
    }
  }

  #broken(doing: string, cause: unknown): TransportError {
    if (this.#ended) return this.#ended;
    const text = cause instanceof Error ? cause.message : String(cause);
    if (cause instanceof TransportError) {
      return new TransportError(cause.code, `${doing}: ${text}`, { cause });
    }
    return new TransportError("closed", `${doing}: the connection broke (${text})`, { cause });
  }
}
