/**
 * A TCP proxy that can be cut: what stands between two processes when a network fails them.
 *
 * @module
 */

/** Bytes read at once. */
const CHUNK_BYTES = 64 * 1024;

/** Told of the bytes of one connection, numbered from 0, before they are passed on. */
export type Tap = (connection: number, direction: "up" | "down", bytes: Uint8Array) => void;

/** Pause between two attempts to have the port again, in milliseconds. */
const AGAIN_MS = 50;

/** Passes connections on to one place, which may be gone for a while and come back elsewhere. */
export class TcpProxy {
  /** Where it listens, HOST:PORT; the same as long as it lives. */
  readonly address: string;
  readonly #tap: Tap;
  readonly #open = new Set<Deno.TcpConn>();
  readonly #running = new Set<Promise<void>>();
  #listener: Deno.TcpListener | undefined;
  #target: string | undefined;
  #count = 0;
  #closed = false;

  /**
   * Takes a free port of the loopback.
   *
   * @param target HOST:PORT to which connections made from now on go.
   */
  constructor(target?: string, tap: Tap = () => {}) {
    this.#tap = tap;
    this.#target = target;
    this.#listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    this.address = `127.0.0.1:${this.#listener.addr.port}`;
    if (target === undefined) this.lead(undefined);
    else this.#track(this.#accept(this.#listener));
  }

  /** Leads new connections elsewhere; nowhere, so that they are refused, when there is no target. */
  lead(target: string | undefined): void {
    this.#target = target;
    if (target !== undefined) {
      this.#track(this.#listen());
      return;
    }
    this.#listener?.close();
    this.#listener = undefined;
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
    this.lead(undefined);
    this.#closed = true;
    this.cut();
    await Promise.all(this.#running);
  }

  /** Listens on its port again, as soon as it can be had. */
  async #listen(): Promise<void> {
    const port = Number(this.address.split(":")[1]);
    while (this.#target !== undefined && this.#listener === undefined && !this.#closed) {
      try {
        this.#listener = Deno.listen({ hostname: "127.0.0.1", port });
        this.#track(this.#accept(this.#listener));
      } catch {
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }

  async #accept(listener: Deno.TcpListener): Promise<void> {
    while (this.#listener === listener) {
      try {
        const near = await listener.accept();
        this.#track(this.#serve(near, this.#count++));
      } catch {
        // Closed, or a stranger who left before he was let in.
      }
    }
  }

  async #serve(near: Deno.TcpConn, connection: number): Promise<void> {
    const [hostname, port] = (this.#target ?? "").split(":");
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
