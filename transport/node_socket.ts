/**
 * A socket of node:net or node:tls as a connection.
 *
 * @module
 */
import type { Socket } from "node:net";
import { Buffer } from "node:buffer";
import type { Connection } from "./connection.ts";

/** Reads and writes a socket of Node's, one read and one write at a time. */
export class SocketConnection implements Connection {
  readonly peer: string;
  readonly #socket: Socket;
  readonly #starved: () => void;
  #ahead: Uint8Array = new Uint8Array(0);
  #ended = false;
  #error: Error | undefined;
  #wake = () => {};

  /** @param starved Told when all that came was taken, and more is waited for. */
  constructor(socket: Socket, peer: string, starved: () => void = () => {}) {
    this.#socket = socket;
    this.peer = peer;
    this.#starved = starved;
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
      else {
        this.#starved();
        await new Promise<void>((resolve) => this.#wake = resolve);
      }
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
