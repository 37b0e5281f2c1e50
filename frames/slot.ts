/**
 * A place for one frame in the arena, reused round after round.
 *
 *     base            + 8 ............ + 33 ......................
 *     | spare         | record header  | frame, then its tag     |
 *                           | length   |
 *                           + 29
 *
 * The frame starts 31 bytes before a multiple of 64, which aligns the data of its first tensor when that
 * has one dim. A record's header is contiguous in front of it, and the length prefix of the rank leg
 * lies over that header's end: whichever leg the frame takes next, it leaves in one write.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import { RECORD_HEADER_BYTES } from "../wire/mux.ts";
import { LENGTH_BYTES } from "../wire/length.ts";
import { invariant } from "../wire/errors.ts";

const FRAME_AT = 33;

/** Bytes in the shared memory of an arena. */
export type Bytes = Uint8Array<ArrayBufferLike>;

/** Somebody who still reads the frame in a slot when the slot is wanted for the next one. */
export interface SlotReader {
  /** Whether it has read all. */
  readonly done: boolean;
  /** Calls `action` as soon as it has read all. */
  whenDone(action: () => void): void;
  /** Makes it give up: what it has not read is lost to it. */
  abandon(): void;
}

/** Room for one frame and for what the wire puts in front of it. */
export class FrameSlot {
  readonly #arena: Arena;
  #run: Bytes | undefined;
  #length = 0;
  #frame: Bytes = new Uint8Array(0);
  /** Who reads the frame that lies here; it keeps the memory when the slot is reserved anew. */
  reader: SlotReader | undefined;

  constructor(arena: Arena) {
    this.#arena = arena;
  }

  /** The longest frame that fits without taking more memory. */
  get capacity(): number {
    return this.#run === undefined ? 0 : this.#run.length - FRAME_AT;
  }

  /**
   * Makes room for a frame of `length` bytes; what lay there is lost.
   *
   * @throws {RangeError} when the arena is full.
   */
  reserve(length: number): void {
    this.#makeWay();
    if (length > this.capacity) {
      this.release();
      this.#run = this.#arena.alloc(length + FRAME_AT);
    } else if (length === this.#length) return;
    this.#length = length;
    this.#frame = this.#run!.subarray(FRAME_AT, FRAME_AT + length);
  }

  /** The frame, of the length last reserved. */
  get frame(): Bytes {
    return this.#frame;
  }

  /** A record's header followed by the frame. */
  get record(): Bytes {
    return this.#before(RECORD_HEADER_BYTES);
  }

  /** A length prefix followed by the frame. */
  get prefixed(): Bytes {
    return this.#before(LENGTH_BYTES);
  }

  /** Gives the memory back to the arena. */
  release(): void {
    this.#makeWay();
    if (this.#run !== undefined) this.#arena.free(this.#run);
    this.#run = undefined;
    this.#length = 0;
    this.#frame = new Uint8Array(0);
  }

  /** Leaves the memory to whoever still reads it, and takes as much anew. */
  #makeWay(): void {
    const { reader } = this;
    const run = this.#run;
    this.reader = undefined;
    if (reader === undefined || reader.done || run === undefined) return;
    try {
      this.#run = this.#arena.alloc(run.length);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      return reader.abandon();
    }
    this.#length = 0;
    reader.whenDone(() => this.#arena.free(run));
  }

  #before(bytes: number): Bytes {
    invariant(this.#run !== undefined, "a slot is read before it was reserved");
    return this.#run.subarray(FRAME_AT - bytes, FRAME_AT + this.#length);
  }
}
