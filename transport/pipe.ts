/**
 * A connection in memory that can be bad in every way a network is: small buffers, partial reads and
 * writes, changed bytes, sudden death. Whatever it chooses follows from a seed.
 *
 * @module
 */
import type { Connection } from "./connection.ts";
import { invariant } from "../wire/errors.ts";

/** How a pipe behaves. */
export interface PipeOptions {
  /** From which every choice follows; 1 when left out. */
  seed?: number;
  /** How many bytes one direction holds before a write has to wait; 64 KiB when left out. */
  budget?: number;
  /** The most bytes that one read or write moves; how many it is each time is chosen. */
  mostBytes?: number;
  /**
   * Sees the bytes of every write before they leave, and may change them in place.
   *
   * @param bytes A copy of them.
   * @param at How many bytes that end has written before.
   * @param end Which end writes, 0 or 1.
   */
  corrupt?: (bytes: Uint8Array, at: number, end: number) => void;
  /** Kills the pipe after this many bytes, counted over both directions. */
  dieAfter?: number;
}

/** What both ends share. */
interface Fate {
  readonly options: PipeOptions;
  /** Bytes that may still pass before the pipe dies. */
  left: number;
  dead: boolean;
  /** A whole number from 1 to `limit`. */
  choose(limit: number): number;
  /** Kills the pipe. */
  kill(): void;
}

/** One direction: a ring of bytes, and those who wait for it to change. */
class Stream {
  readonly #ring: Uint8Array;
  readonly #fate: Fate;
  readonly #from: number;
  #start = 0;
  #length = 0;
  #passed = 0;
  #ended = false;
  #waiting: (() => void)[] = [];

  constructor(fate: Fate, from: number) {
    this.#ring = new Uint8Array(fate.options.budget ?? 65_536);
    this.#fate = fate;
    this.#from = from;
  }

  /** Wakes everybody who waits, to look again. */
  wake(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  /** Nothing more is written. */
  end(): void {
    this.#ended = true;
    this.wake();
  }

  async read(into: Uint8Array, open: () => void): Promise<number | null> {
    invariant(into.length > 0, "a read of no bytes");
    for (;;) {
      open();
      if (this.#length > 0) break;
      if (this.#ended) return null;
      await this.#change();
    }
    const count = this.#fate.choose(Math.min(into.length, this.#length));
    for (let i = 0; i < count; i++) into[i] = this.#ring[(this.#start + i) % this.#ring.length]!;
    this.#start = (this.#start + count) % this.#ring.length;
    this.#length -= count;
    this.wake();
    return count;
  }

  async write(bytes: Uint8Array, open: () => void): Promise<number> {
    invariant(bytes.length > 0, "a write of no bytes");
    for (;;) {
      open();
      if (this.#ended) throw new Error("Broken pipe");
      if (this.#length < this.#ring.length) break;
      await this.#change();
    }
    const fate = this.#fate;
    const room = Math.min(bytes.length, this.#ring.length - this.#length, fate.left);
    const count = fate.choose(room);
    const copy = bytes.slice(0, count);
    fate.options.corrupt?.(copy, this.#passed, this.#from);
    const at = this.#start + this.#length;
    for (let i = 0; i < count; i++) this.#ring[(at + i) % this.#ring.length] = copy[i]!;
    this.#length += count;
    this.#passed += count;
    fate.left -= count;
    this.wake();
    if (fate.left === 0) fate.kill();
    return count;
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** One end. Reads queue behind each other, and so do writes, as they do on a socket. */
class End implements Connection {
  readonly peer: string;
  readonly #fate: Fate;
  readonly #input: Stream;
  readonly #output: Stream;
  #reads: Promise<unknown> = Promise.resolve();
  #writes: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(peer: string, fate: Fate, input: Stream, output: Stream) {
    this.peer = peer;
    this.#fate = fate;
    this.#input = input;
    this.#output = output;
  }

  read(into: Uint8Array): Promise<number | null> {
    const done = this.#reads.then(() => this.#input.read(into, this.#expectOpen));
    this.#reads = done.catch(() => {});
    return done;
  }

  write(bytes: Uint8Array): Promise<number> {
    const done = this.#writes.then(() => this.#output.write(bytes, this.#expectOpen));
    this.#writes = done.catch(() => {});
    return done;
  }

  closeWrite(): Promise<void> {
    this.#output.end();
    return Promise.resolve();
  }

  close(): void {
    this.#closed = true;
    this.#output.end();
    // The other end can write no more either.
    this.#input.end();
    this.#input.wake();
  }

  readonly #expectOpen = (): void => {
    if (this.#closed) throw new Error("operation canceled");
    if (this.#fate.dead) throw new Error("Connection reset");
  };
}

/** Two connected ends in memory. */
export class Pipe {
  /** The ends. */
  readonly ends: readonly [Connection, Connection];
  readonly #fate: Fate;

  /** @param options How it behaves; faultless when left out. */
  constructor(options: PipeOptions = {}) {
    let state = (options.seed ?? 1) >>> 0 || 1;
    const streams: Stream[] = [];
    const fate: Fate = {
      options,
      left: options.dieAfter ?? Infinity,
      dead: options.dieAfter === 0,
      choose: (limit) => {
        const most = Math.min(limit, options.mostBytes ?? limit);
        // Marsaglia's xorshift, 32 bits.
        state ^= state << 13;
        state ^= state >>> 17;
        state = (state ^ (state << 5)) >>> 0;
        return options.mostBytes === undefined ? most : 1 + state % most;
      },
      kill: () => {
        fate.dead = true;
        for (const stream of streams) stream.wake();
      },
    };
    this.#fate = fate;
    const [there, back] = [new Stream(fate, 0), new Stream(fate, 1)];
    streams.push(there, back);
    this.ends = [new End("pipe:1", fate, back, there), new End("pipe:0", fate, there, back)];
  }

  /** Breaks it: every read and write fails from now on, on both ends. */
  kill(): void {
    this.#fate.kill();
  }
}
