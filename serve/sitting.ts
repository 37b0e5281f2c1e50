/**
 * What relay and controller do around their rounds: accept connections, keep every task in view, look at
 * what is ready one look at a time, and end once.
 *
 * @module
 */
import type { Connection } from "../transport/connection.ts";
import type { Listener } from "../transport/network.ts";
import { InvariantError } from "../wire/errors.ts";

/** The server's end of one connection. */
export interface Port {
  /** Serves the connection until it ends. Never rejects for what the peer does. */
  run(): Promise<void>;
  /** Closes the connection at once, unless a last word is on its way. */
  abandon(): void;
}

/** What a server does in its own way. */
export interface SittingOptions {
  /** Looks at what is ready and does it. Never called again before it has settled. */
  turn: () => Promise<void>;
  /** Tells everybody that the session is over; called once. */
  over: (error: unknown) => void;
  /** Makes the port of a new connection. */
  greet: (connection: Connection) => Port;
  /** Told of a failed accept, after which accepting goes on. */
  acceptFailed: (error: Error) => void;
}

/** One session of a server, from its first connection to its last task. */
export class Sitting {
  readonly #options: SittingOptions;
  /** Every port that still reads or writes, strangers' included. */
  readonly #ports = new Set<Port>();
  readonly #tasks = new Set<Promise<void>>();
  readonly #finished = Promise.withResolvers<void>();
  #over = false;
  #turning = false;
  #again = false;

  constructor(options: SittingOptions) {
    this.#options = options;
    // Whoever serves looks at it later; until then a rejection is nobody's fault.
    this.#finished.promise.catch(() => {});
  }

  /** Whether the session has ended. */
  get over(): boolean {
    return this.#over;
  }

  /**
   * Serves what `listener` accepts until the session ends, then waits for every task.
   *
   * @param opened Called once connections are accepted.
   * @throws What the session was ended with.
   */
  async serve(listener: Listener, signal: AbortSignal, opened: () => void): Promise<void> {
    const abort = () => this.end(signal.reason);
    signal.addEventListener("abort", abort);
    const accepting = listener.accept((connection) => {
      const port = this.#options.greet(connection);
      this.#ports.add(port);
      this.track(port.run().finally(() => this.#ports.delete(port)));
    }, this.#options.acceptFailed);
    try {
      if (signal.aborted) abort();
      else opened();
      await this.#finished.promise;
    } finally {
      signal.removeEventListener("abort", abort);
      listener.close();
      await accepting;
      for (const port of this.#ports) port.abandon();
      while (this.#tasks.size > 0) await Promise.allSettled(this.#tasks);
    }
  }

  /** Keeps a task's failure from being lost: it ends the session. */
  track(task: Promise<void>): void {
    const tracked: Promise<void> = task
      .catch((error) => this.end(error))
      .finally(() => this.#tasks.delete(tracked));
    this.#tasks.add(tracked);
  }

  /** Ends the session: with an error, or without one when all is done. Only the first call counts. */
  end(error?: unknown): void {
    if (this.#over) return;
    this.#over = true;
    // A broken promise of our own must not pass for a lost peer.
    if (error instanceof InvariantError) throw error;
    this.#options.over(error);
    if (error === undefined) this.#finished.resolve();
    else this.#finished.reject(error);
  }

  /** Has a look taken at what is ready, after the one under way if there is one. */
  pump(): void {
    this.#again = true;
    if (this.#turning) return;
    this.#turning = true;
    this.track(this.#drive());
  }

  async #drive(): Promise<void> {
    try {
      while (this.#again && !this.#over) {
        this.#again = false;
        await this.#options.turn();
      }
    } finally {
      // Together with the last look at #again, or a call in between would be lost.
      this.#turning = false;
    }
  }
}
