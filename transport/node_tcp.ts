/**
 * TCP by node:net, for ranks that run on Node.js.
 *
 * @module
 */
import { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import { connectByAttempts } from "./attempts.ts";
import type { Connection } from "./connection.ts";
import type { Network } from "./network.ts";
import { type Address, formatAddress } from "./address.ts";

/** A socket of Node's as a connection. */
class SocketConnection implements Connection {
  readonly peer: string;
  readonly #socket: Socket;
  #ahead: Uint8Array = new Uint8Array(0);
  #ended = false;
  #error: Error | undefined;
  #wake = () => {};

  constructor(socket: Socket, address: Address) {
    this.#socket = socket;
    this.peer = formatAddress(address);
    // Small frames must not wait for an acknowledgement of the one before.
    socket.setNoDelay(true);
    socket.on("readable", () => this.#wake());
    socket.on("end", () => {
      this.#ended = true;
      this.#wake();
    });
    socket.on("error", (error: Error) => {
      this.#error ??= error;
      this.#wake();
    });
    socket.on("close", () => this.#wake());
  }

  async read(into: Uint8Array): Promise<number | null> {
    while (this.#ahead.length === 0) {
      const chunk: Uint8Array | null = this.#socket.read();
      if (chunk !== null) this.#ahead = chunk;
      else if (this.#error !== undefined) throw this.#error;
      else if (this.#ended) return null;
      else if (this.#socket.destroyed) throw new Error("the connection is closed");
      else await new Promise<void>((resolve) => this.#wake = resolve);
    }
    const count = Math.min(into.length, this.#ahead.length);
    into.set(this.#ahead.subarray(0, count));
    this.#ahead = this.#ahead.subarray(count);
    return count;
  }

  async write(bytes: Uint8Array): Promise<number> {
    // The caller leaves the bytes alone until they are on their way.
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    await this.#settled((done) => this.#socket.write(view, done));
    return bytes.length;
  }

  closeWrite(): Promise<void> {
    return this.#settled((done) => this.#socket.end(done));
  }

  close(): void {
    this.#socket.destroy();
  }

  /** Waits for a callback, or for the end of the socket: Node forgets some callbacks when it ends. */
  #settled(begin: (done: (error?: Error | null) => void) => void): Promise<void> {
    const socket = this.#socket;
    return new Promise((resolve, reject) => {
      const closed = () => reject(this.#error ?? new Error("the connection is closed"));
      if (socket.destroyed) return closed();
      socket.once("close", closed);
      begin((error) => {
        socket.off("close", closed);
        if (error) reject(error);
        else resolve();
      });
    });
  }
}

function attempt(
  address: Address,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<Connection | Error> {
  return new Promise((resolve) => {
    const socket = connect({ host: address.hostname, port: address.port });
    const settle = (outcome: Connection | Error) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      socket.off("error", settle);
      if (outcome instanceof Error) socket.destroy();
      resolve(outcome);
    };
    const stop = () => settle(new Error(`no answer within ${ms} ms`));
    const timer = setTimeout(stop, Math.max(ms, 1));
    signal?.addEventListener("abort", stop);
    socket.once("error", settle);
    socket.once("connect", () => settle(new SocketConnection(socket, address)));
  });
}

/** How Node.js connects. */
export const nodeTcp: Pick<Network, "connect"> = {
  connect: (address, what, options) =>
    connectByAttempts(address, what, options, (ms) => attempt(address, ms, options.signal)),
};
