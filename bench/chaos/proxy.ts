/**
 * A TCP proxy that can be cut: what stands between two processes when a network fails them.
 *
 * @module
 */

/** Bytes read at once. */
const CHUNK_BYTES = 64 * 1024;

/** Told of the bytes of one connection, numbered from 0, before they are passed on. */
export type Tap = (connection: number, direction: "up" | "down", bytes: Uint8Array) => void;

/** Passes connections on to one place, whose port may change between two of them. */
export class TcpProxy {
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #tap: Tap;
  readonly #open = new Set<Deno.TcpConn>();
  readonly #running = new Set<Promise<void>>();
  #count = 0;
  #closed = false;

  /**
   * Listens on a free port of the loopback.
   *
   * @param target HOST:PORT to which connections made from now on go.
   */
  constructor(public target: string, tap: Tap = () => {}) {
    this.#tap = tap;
    this.#track(this.#accept());
  }

  /** Where it listens, HOST:PORT. */
  get address(): string {
    return `127.0.0.1:${this.#listener.addr.port}`;
  }

  /** How many connections are open. */
  get connections(): number {
    return this.#open.size / 2;
  }

  /**
   * Ends every connection where it is, in the middle of whatever is on its way.
   *
   * @returns How many there were.
   */
  cut(): number {
    const count = this.connections;
    for (const conn of this.#open) shut(conn);
    this.#open.clear();
    return count;
  }

  /** Stops listening and ends every connection. */
  async close(): Promise<void> {
    if (!this.#closed) this.#listener.close();
    this.#closed = true;
    this.cut();
    await Promise.all(this.#running);
  }

  async #accept(): Promise<void> {
    while (!this.#closed) {
      try {
        const inner = await this.#listener.accept();
        this.#track(this.#serve(inner, this.#count++));
      } catch {
        // Closed, or a stranger who left before he was let in.
      }
    }
  }

  async #serve(near: Deno.TcpConn, connection: number): Promise<void> {
    const [hostname, port] = this.target.split(":");
    let far: Deno.TcpConn;
    try {
      far = await Deno.connect({ hostname: hostname!, port: Number(port) });
    } catch {
      return shut(near);
    }
    if (this.#closed) {
      shut(near);
      return shut(far);
    }
    for (const conn of [near, far]) {
      conn.setNoDelay(true);
      this.#open.add(conn);
    }
    await Promise.all([
      this.#pass(near, far, (bytes) => this.#tap(connection, "up", bytes)),
      this.#pass(far, near, (bytes) => this.#tap(connection, "down", bytes)),
    ]);
    for (const conn of [near, far]) {
      this.#open.delete(conn);
      shut(conn);
    }
  }

  /** Copies one direction; its end, or a break on either side, is passed on. */
  async #pass(
    from: Deno.TcpConn,
    to: Deno.TcpConn,
    tap: (bytes: Uint8Array) => void,
  ): Promise<void> {
    const chunk = new Uint8Array(CHUNK_BYTES);
    try {
      for (;;) {
        const got = await from.read(chunk);
        if (got === null) break;
        const bytes = chunk.subarray(0, got);
        tap(bytes);
        let at = 0;
        while (at < got) at += await to.write(bytes.subarray(at));
      }
      await to.closeWrite();
    } catch {
      shut(from);
      shut(to);
    }
  }

  #track(run: Promise<void>): void {
    this.#running.add(run);
    void run.finally(() => this.#running.delete(run));
  }
}

function shut(conn: Deno.TcpConn): void {
  try {
    conn.close();
  } catch {
    // It was closed before.
  }
}
