/**
 * TCP: connecting with back-off within a deadline, and accepting.
 *
 * @module
 */
import { type Address, formatAddress } from "./address.ts";
import { connectByAttempts, pause } from "./attempts.ts";
import { type Connection, TransportError } from "./connection.ts";

export { type Address, formatAddress } from "./address.ts";

/** Pause after a failed accept, such as one for want of file descriptors. */
const ACCEPT_PAUSE_MS = 100;

/** A fatal alert, protocol_version (RFC 8446, 6): ends a TLS handshake for good. */
export const TLS_ALERT: readonly number[] = [21, 3, 3, 0, 2, 2, 70];

/** How connections behave. */
export interface TcpOptions {
  /** Fail the first read when the other end speaks TLS; for protocols that never start so. */
  refuseTls?: boolean;
}

class TcpConnection implements Connection {
  readonly peer: string;
  readonly #conn: Deno.TcpConn;
  /** Whether the first bytes are still to be looked at. */
  #unheard: boolean;
  #closed = false;

  constructor(conn: Deno.TcpConn, { refuseTls = false }: TcpOptions) {
    this.#unheard = refuseTls;
    // Small frames must not wait for an acknowledgement of the one before.
    conn.setNoDelay(true);
    // A host that lost its power says no goodbye: without this, whoever only waits for its bytes would
    // take it for alive for ever, and its place for taken.
    conn.setKeepAlive(true);
    this.#conn = conn;
    this.peer = formatAddress(conn.remoteAddr);
  }

  read(into: Uint8Array): Promise<number | null> {
    return this.#unheard ? this.#readFirst(into) : this.#conn.read(into as Uint8Array<ArrayBuffer>);
  }

  async #readFirst(into: Uint8Array): Promise<number | null> {
    this.#unheard = false;
    const count = await this.#conn.read(into as Uint8Array<ArrayBuffer>);
    // A record of TLS: alert or handshake, version 3.x (RFC 8446, 5.1).
    if (count !== null && count >= 3 && (into[0] === 21 || into[0] === 22) && into[1] === 3) {
      if (into[0] === 22) await this.#conn.write(Uint8Array.from(TLS_ALERT));
      throw new TransportError(
        "refused",
        "the other end speaks TLS, this one does not; give both the options --tls-*, or neither",
      );
    }
    return count;
  }

  write(bytes: Uint8Array): Promise<number> {
    return this.#conn.write(bytes as Uint8Array<ArrayBuffer>);
  }

  closeWrite(): Promise<void> {
    return this.#conn.closeWrite();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#conn.close();
  }
}

/**
 * Connects to `address`, trying every address that its name has, again and again with growing pauses.
 *
 * @param what Who is connected to, for the error: "the controller".
 * @param options.deadlineMs How long to try, in milliseconds.
 * @param options.signal Ends the attempt early.
 * @throws {TransportError} with code "unreachable" when the time has passed, "ended" when aborted.
 * @throws {Deno.errors.NotCapable} when this process may not connect there.
 */
export async function connectTcp(
  address: Address,
  what: string,
  options: { deadlineMs: number; signal?: AbortSignal } & TcpOptions,
): Promise<Connection> {
  const { signal, deadlineMs } = options;
  const give = signal === undefined ? { deadlineMs } : { deadlineMs, signal };
  return await connectByAttempts(address, what, give, (ms) => attempt(address, ms, options));
}

async function attempt(
  address: Address,
  ms: number,
  { signal, ...more }: { signal?: AbortSignal } & TcpOptions,
): Promise<Connection | Error> {
  const controller = new AbortController();
  const stop = () => controller.abort(new Error(`no answer within ${ms} ms`));
  const timer = setTimeout(stop, Math.max(ms, 1));
  signal?.addEventListener("abort", stop);
  try {
    return new TcpConnection(await Deno.connect({ ...address, signal: controller.signal }), more);
  } catch (error) {
    // What this process may not do now it may not do later either.
    if (error instanceof Deno.errors.NotCapable) throw error;
    return error instanceof Error ? error : new Error(String(error));
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** A listening socket. */
export class TcpListener {
  readonly #listener: Deno.TcpListener;
  readonly #options: TcpOptions;
  #closed = false;

  private constructor(listener: Deno.TcpListener, options: TcpOptions) {
    this.#listener = listener;
    this.#options = options;
  }

  /**
   * Listens on `address`; port 0 takes a free one.
   *
   * @throws {TransportError} with code "address" when the address cannot be had.
   */
  static listen(address: Address, options: TcpOptions = {}): TcpListener {
    try {
      return new TcpListener(Deno.listen(address), options);
    } catch (cause) {
      const text = cause instanceof Error ? cause.message : String(cause);
      const remedy = cause instanceof Deno.errors.NotCapable
        ? `--allow-net=${formatAddress(address)} is enough`
        : "choose another address or port, or stop the process that holds it";
      throw new TransportError(
        "address",
        `listening on ${formatAddress(address)}: ${text}; ${remedy}`,
        {
          cause,
        },
      );
    }
  }

  /** The address in use, with the real port. */
  get address(): Address {
    const { hostname, port } = this.#listener.addr;
    return { hostname, port };
  }

  /**
   * Hands every connection to `serve` until the listener is closed.
   *
   * @param onError Told of a failed accept, after which accepting goes on.
   */
  async accept(
    serve: (connection: Connection) => void,
    onError: (error: Error) => void,
  ): Promise<void> {
    while (!this.#closed) {
      try {
        serve(new TcpConnection(await this.#listener.accept(), this.#options));
      } catch (error) {
        if (this.#closed) return;
        onError(error instanceof Error ? error : new Error(String(error)));
        await pause(ACCEPT_PAUSE_MS, undefined);
      }
    }
  }

  /** Stops accepting; connections already accepted live on. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#listener.close();
  }
}
