/**
 * Between connections and node's streams: a connection as the stream under node:tls, and the stream that
 * node:tls gives back as a connection.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Connection } from "./connection.ts";
import { SocketConnection } from "./node_socket.ts";

/** Bytes asked of the connection at once: a few records of TLS, 16 KiB each. */
const READ_BYTES = 64 * 1024;
/** After so many bytes no more are read until somebody has taken them. */
const HELD_BYTES = 256 * 1024;
/** Most bytes that one write takes: they are copied, since node keeps them until they are on their way. */
const WRITE_BYTES = 256 * 1024;

/** The connection under TLS broke or was closed, which says nothing about the two ends. */
export class CarrierError extends Error {}

const carrierError = (cause: unknown) =>
  new CarrierError(cause instanceof Error ? cause.message : String(cause), { cause });

/**
 * A connection as the stream under TLS. Whoever has the connection closes it; destroying the stream does
 * not.
 */
export class Carrier {
  /** The stream. */
  readonly stream: Duplex;
  readonly #connection: Connection;
  /** Bytes that came since all were last taken. */
  #held = 0;
  #goOn: (() => void) | undefined;
  readonly #ended = Promise.withResolvers<void>();

  constructor(connection: Connection) {
    this.#connection = connection;
    const read = () => void this.#read();
    this.stream = new Duplex({
      allowHalfOpen: true,
      readableHighWaterMark: READ_BYTES,
      writableHighWaterMark: READ_BYTES,
      read,
      write(chunk: Uint8Array, _encoding, done) {
        writeAll(connection, chunk).then(() => done(), (error) => done(carrierError(error)));
      },
      final(done) {
        connection.closeWrite().then(() => done(), (error) => done(carrierError(error)));
      },
    });
  }

  /** Settles when nothing more will come. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Says that everything which came was taken: node:tls itself would read on for ever. */
  starved(): void {
    this.#held = 0;
    this.#goOn?.();
    this.#goOn = undefined;
  }

  async #read(): Promise<void> {
    if (this.#held > HELD_BYTES) await new Promise<void>((resolve) => this.#goOn = resolve);
    // push() keeps what it is given, so every read has a buffer of its own.
    const buffer = Buffer.allocUnsafe(READ_BYTES);
    try {
      const count = await this.#connection.read(buffer);
      this.#held += count ?? 0;
      if (count === null) this.#ended.resolve();
      this.stream.push(count === null ? null : buffer.subarray(0, count));
    } catch (error) {
      this.#ended.resolve();
      this.stream.destroy(carrierError(error));
    }
  }
}

async function writeAll(connection: Connection, bytes: Uint8Array): Promise<void> {
  let rest = bytes;
  while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
}

/** What node:tls gives, as a connection: bytes go in and out in the clear, TLS is below. */
export class TlsConnection extends SocketConnection {
  /** The connection that carries the TLS. */
  readonly #below: Connection;

  constructor(socket: TLSSocket, below: Connection, carrier: Carrier) {
    super(socket, below.peer, () => carrier.starved());
    this.#below = below;
    // TLS itself does not notice everything that happens to what carries it.
    carrier.stream.on("error", (error) => socket.destroy(error));
    if (carrier.stream.errored) socket.destroy(carrier.stream.errored);
  }

  override write(bytes: Uint8Array): Promise<number> {
    return super.write(bytes.slice(0, WRITE_BYTES));
  }

  welcome(): void {
    this.#below.welcome?.();
  }

  override close(): void {
    super.close();
    this.#below.close();
  }
}
