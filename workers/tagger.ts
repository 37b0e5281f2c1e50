/**
 * Tags computed where that is cheapest: small frames on the loop, since a hop to another thread costs
 * more than their hash; large ones on threads that read the frame where it lies, in shared memory.
 *
 * @module
 */
import { Tag64 } from "../wire/mac.ts";
import { HashPool } from "./hash_pool.ts";

/** A tag under construction, on whatever thread. */
export interface TagLane {
  /** Takes the next bytes, which must stay unchanged until `digest` has settled. */
  update(bytes: Uint8Array): void;
  /** The tag of everything taken, 8 bytes; the lane is spent. */
  digest(): Uint8Array | Promise<Uint8Array>;
  /** Gives the lane up without a tag. */
  abandon(): void;
}

/** Opens lanes. */
export interface Tagger {
  /**
   * Starts a tag.
   *
   * @param length About how many bytes will come; they lie in the arena unless they are few.
   */
  open(length: number): TagLane;
}

/**
 * Below so many bytes a tag stays on the loop: there it takes less than 0.2 ms, and two hops to a
 * thread and back take about as long.
 */
export const LANE_BYTES = 256 * 1024;

class LoopLane implements TagLane {
  readonly #tag: Tag64;

  constructor(salt: Uint8Array) {
    this.#tag = new Tag64(salt);
  }

  update(bytes: Uint8Array): void {
    this.#tag.update(bytes);
  }

  digest(): Uint8Array {
    return this.#tag.digest();
  }

  abandon(): void {}
}

/** A tagger that never leaves the loop. */
export class LoopTagger implements Tagger {
  readonly #salt: Uint8Array;

  /** @param salt The session salt. */
  constructor(salt: Uint8Array) {
    this.#salt = salt;
  }

  open(_length: number): TagLane {
    return new LoopLane(this.#salt);
  }
}

/** A tagger that hands large frames to threads, which are started when the first one comes. */
export class PooledTagger implements Tagger {
  readonly #salt: Uint8Array;
  readonly #memory: WebAssembly.Memory;
  readonly #workers: number;
  #pool: HashPool | undefined;

  /**
   * @param salt The session salt.
   * @param memory The arena's memory, in which frames lie.
   * @param workers How many threads; 0 keeps everything on the loop.
   */
  constructor(salt: Uint8Array, memory: WebAssembly.Memory, workers: number) {
    this.#salt = salt;
    this.#memory = memory;
    this.#workers = workers;
  }

  open(length: number): TagLane {
    if (length < LANE_BYTES || this.#workers === 0) return new LoopLane(this.#salt);
    this.#pool ??= new HashPool(this.#salt, this.#memory, this.#workers);
    return this.#pool.open(length);
  }

  /** Ends the threads. */
  close(): void {
    this.#pool?.close();
    this.#pool = undefined;
  }
}

/** How many threads `--workers auto` means here: one a core, none on a single core, at most 8. */
export function autoWorkers(cores: number = navigator.hardwareConcurrency): number {
  return cores < 2 ? 0 : Math.min(cores, 8);
}
