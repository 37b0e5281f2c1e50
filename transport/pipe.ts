/**
 * A connection in memory that can be bad in every way a network is: small buffers, partial reads and
 * writes, late bytes, silence, changed bytes, sudden death. Whatever it chooses follows from a seed.
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
  /**
   * How long what was just written is under way, in milliseconds; no time at all when left out. Bytes
   * never overtake each other, and the end of a stream comes after all of them.
   *
   * @param end Which end has written, 0 or 1.
   */
  delay?: (end: number) => number;
  /** Whether closing an end breaks the pipe when bytes for it are unread or under way, as TCP does. */
  resets?: boolean;
  /** How end 0 and end 1 are called in errors and logs. */
  names?: readonly [string, string];
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

/** Bytes under way, or the end of the stream, which has none. */
interface Parcel {
  readonly bytes: number;
  /** Rings when it has come; undefined once it has. */
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** One direction: a ring of bytes, and those who wait for it to change. */
class Stream {
  readonly #ring: Uint8Array;
  readonly #fate: Fate;
  readonly #from: number;
  #start = 0;
  /** Bytes in the ring: those that have arrived, then those under way. */
  #length = 0;
  #arrived = 0;
  #underway: Parcel[] = [];
  #held = false;
  #passed = 0;
  /** Nothing more is written. */
  #ended = false;
  /** The reader has seen, or will see next, the end. */
  #endArrived = false;
  #waiting: (() => void)[] = [];

  constructor(fate: Fate, from: number) {
    this.#ring = new Uint8Array(fate.options.budget ?? 65_536);
    this.#fate = fate;
    this.#from = from;
  }

  /** Whether it has bytes that were not read. */
  get unread(): boolean {
    return this.#length > 0;
  }

  /** Wakes everybody who waits, to look again. */
  wake(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  /** Nothing more is written; what was written arrives. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#depart(0);
    this.wake();
  }

  /** Nobody reads any more. */
  stop(): void {
    this.#ended = this.#endArrived = true;
    for (const { timer } of this.#underway.splice(0)) clearTimeout(timer);
    this.wake();
  }

  /** Whether what is under way stays there. */
  hold(held: boolean): void {
    this.#held = held;
    this.#land();
  }

  async read(into: Uint8Array, open: () => void): Promise<number | null> {
    invariant(into.length > 0, "a read of no bytes");
    for (;;) {
      open();
      if (this.#arrived > 0) break;
      if (this.#endArrived) return null;
      await this.#change();
    }
    const count = this.#fate.choose(Math.min(into.length, this.#arrived));
    const ring = this.#ring;
    const first = Math.min(count, ring.length - this.#start);
    into.set(ring.subarray(this.#start, this.#start + first));
    into.set(ring.subarray(0, count - first), first);
    this.#start = (this.#start + count) % ring.length;
    this.#length -= count;
    this.#arrived -= count;
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
    const ring = this.#ring;
    const room = Math.min(bytes.length, ring.length - this.#length, fate.left);
    const count = fate.choose(room);
    const copy = bytes.slice(0, count);
    fate.options.corrupt?.(copy, this.#passed, this.#from);
    // It may have killed the pipe.
    open();
    const at = (this.#start + this.#length) % ring.length;
    const first = Math.min(count, ring.length - at);
    ring.set(copy.subarray(0, first), at);
    ring.set(copy.subarray(first), 0);
    this.#length += count;
    this.#passed += count;
    fate.left -= count;
    this.#depart(count);
    if (fate.left === 0) fate.kill();
    return count;
  }

  #depart(bytes: number): void {
    const parcel: Parcel = { bytes, timer: undefined };
    const ms = this.#fate.options.delay?.(this.#from) ?? 0;
    if (ms > 0) {
      parcel.timer = setTimeout(() => {
        parcel.timer = undefined;
        this.#land();
      }, ms);
    }
    this.#underway.push(parcel);
    this.#land();
  }

  /** Takes in what has come, in order. */
  #land(): void {
    const queue = this.#underway;
    while (!this.#held && queue.length > 0 && queue[0]!.timer === undefined) {
      const { bytes } = queue.shift()!;
      this.#arrived += bytes;
      if (bytes === 0) this.#endArrived = true;
    }
    this.wake();
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
    if (this.#closed) return;
    this.#closed = true;
    if (this.#fate.options.resets && this.#input.unread) this.#fate.kill();
    this.#output.end();
    // The other end can write no more either.
    this.#input.stop();
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
  readonly #streams: readonly [Stream, Stream];

  /** @param options How it behaves; faultless when left out. */
  constructor(options: PipeOptions = {}) {
    let state = (options.seed ?? 1) >>> 0 || 1;
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
        for (const stream of this.#streams) stream.stop();
      },
    };
    this.#fate = fate;
    const [there, back] = [new Stream(fate, 0), new Stream(fate, 1)];
    this.#streams = [there, back];
    const [first, second] = options.names ?? ["pipe:0", "pipe:1"];
    this.ends = [new End(second, fate, back, there), new End(first, fate, there, back)];
  }

  /** Breaks it: every read and write fails from now on, on both ends. */
  kill(): void {
    this.#fate.kill();
  }

  /**
   * Silence: what `end` writes, and has on its way, does not arrive until that is taken back.
   *
   * @param end 0 or 1.
   */
  hold(end: 0 | 1, held: boolean): void {
    this.#streams[end].hold(held);
  }
}
