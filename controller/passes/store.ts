/**
 * Where gradient blocks are kept, by name.
 *
 * A name is a 64-bit checksum that anyone can collide on purpose, so a store never replaces a block: it
 * compares, and refuses other bytes under the same name.
 *
 * @module
 */
import { Breather } from "../../transport/breather.ts";
import { Fnv1a64 } from "../../wire/fnv.ts";
import { GARW_CID } from "../../wire/garw.ts";

/** Bytes hashed or compared at once, about 2 ms of work, so that rounds go on meanwhile. */
const SLICE_BYTES = 512 * 1024;

/** Why a store refused. */
export type StoreErrorCode =
  /** No such block. */
  | "BlockNotFound"
  /** Another block has the same name. */
  | "CidCollision"
  /** What is stored is not what its name says. */
  | "CorruptBlock"
  /** There is no room, even without the blocks that nobody uses. */
  | "StoreFull"
  /** The name is not one. */
  | "InvalidCid";

/** A block that cannot be kept or had. */
export class StoreError extends Error {
  /** "StoreError". */
  override readonly name = "StoreError";
  /** The cause. */
  readonly code: StoreErrorCode;

  /** Builds the error from its cause and from what was being done, expected, and found. */
  constructor(code: StoreErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Where the bytes of a store lie. */
export interface BlockShelf {
  /** Names and sizes of what is there already. */
  scan(): Promise<{ cid: string; bytes: number }[]>;
  /** The bytes under a name, or undefined. */
  read(cid: string): Promise<Uint8Array | undefined>;
  /** Puts bytes under a name, all or nothing. */
  write(cid: string, bytes: Uint8Array): Promise<void>;
  /** Removes what is under a name, if anything is. */
  remove(cid: string): Promise<void>;
}

/** Keeps blocks in memory. */
export class MemoryShelf implements BlockShelf {
  readonly #blocks = new Map<string, Uint8Array>();

  /** Nothing is there at first. */
  scan(): Promise<{ cid: string; bytes: number }[]> {
    return Promise.resolve([]);
  }

  /** The very bytes that were put there. */
  read(cid: string): Promise<Uint8Array | undefined> {
    return Promise.resolve(this.#blocks.get(cid));
  }

  /** Keeps `bytes`, which must not change any more. */
  write(cid: string, bytes: Uint8Array): Promise<void> {
    this.#blocks.set(cid, bytes);
    return Promise.resolve();
  }

  /** Lets go of the bytes. */
  remove(cid: string): Promise<void> {
    this.#blocks.delete(cid);
    return Promise.resolve();
  }
}

interface Entry {
  readonly bytes: number;
  /** Passes that use the block; without any it may be thrown out for want of room. */
  holds: number;
}

async function* slices(length: number): AsyncGenerator<[from: number, to: number]> {
  const breather = new Breather();
  for (let from = 0; from < length; from += SLICE_BYTES) {
    yield [from, Math.min(from + SLICE_BYTES, length)];
    await breather.breathe();
  }
}

async function sameBytes(a: Uint8Array, b: Uint8Array): Promise<boolean> {
  if (a.length !== b.length) return false;
  for await (const [from, to] of slices(a.length)) {
    for (let i = from; i < to; i++) if (a[i] !== b[i]) return false;
  }
  return true;
}

/** The name of a block encoded with shape [number of values]; lets the loop turn meanwhile. */
export async function nameOf(block: Uint8Array): Promise<string> {
  const hash = new Fnv1a64();
  for await (const [from, to] of slices(block.length)) hash.update(block.subarray(from, to));
  return `grad-${hash.hex()}`;
}

/** Blocks by name, bounded, verified when they are read. Only canonical blocks are kept. */
export class BlockStore {
  readonly #shelf: BlockShelf;
  readonly #maxBytes: number;
  /** Oldest first. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;
  /** Writes and removals, one at a time. */
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(shelf: BlockShelf, maxBytes: number) {
    this.#shelf = shelf;
    this.#maxBytes = maxBytes;
  }

  /**
   * Opens a store over what the shelf holds already.
   *
   * @param options.maxBytes The most bytes of blocks kept.
   */
  static async open(shelf: BlockShelf, options: { maxBytes: number }): Promise<BlockStore> {
    const store = new BlockStore(shelf, options.maxBytes);
    for (const { cid, bytes } of await shelf.scan()) {
      store.#entries.set(cid, { bytes, holds: 0 });
      store.#bytes += bytes;
    }
    return store;
  }

  /** Bytes of all blocks kept. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of blocks kept. */
  get size(): number {
    return this.#entries.size;
  }

  /**
   * Keeps a block and holds on to it until {@link BlockStore.release}; a block that is there already is
   * compared and held once more, or written again where it was damaged.
   *
   * @param cid Its name.
   * @param block Its encoding with shape [number of values]; must not change any more.
   * @throws {StoreError} CidCollision, StoreFull.
   */
  put(cid: string, block: Uint8Array): Promise<void> {
    return this.#inTurn(async () => {
      const entry = this.#entries.get(cid);
      if (entry !== undefined) {
        const kept = await this.#shelf.read(cid);
        if (kept === undefined || await nameOf(kept) !== cid) await this.#shelf.write(cid, block);
        else if (!await sameBytes(kept, block)) {
          throw new StoreError(
            "CidCollision",
            `keeping block ${cid}: another block of ${kept.length} bytes has this name already`,
          );
        }
        entry.holds++;
        return;
      }
      await this.#makeRoom(cid, block.length);
      await this.#shelf.write(cid, block);
      this.#entries.set(cid, { bytes: block.length, holds: 1 });
      this.#bytes += block.length;
    });
  }

  /**
   * Has a block, verified.
   *
   * @throws {StoreError} InvalidCid, BlockNotFound, CorruptBlock.
   */
  async get(cid: string): Promise<Uint8Array> {
    if (!GARW_CID.test(cid)) {
      throw new StoreError(
        "InvalidCid",
        `reading a block: ${JSON.stringify(cid.slice(0, 64))} is not "grad-" and 16 hex digits`,
      );
    }
    if (!this.#entries.has(cid)) {
      throw new StoreError("BlockNotFound", `reading block ${cid}: there is no such block`);
    }
    return await this.#read(cid);
  }

  /** Lets go of a block once; it stays until its room is needed. */
  release(cid: string): Promise<void> {
    return this.#inTurn(() => {
      const entry = this.#entries.get(cid);
      if (entry !== undefined) entry.holds = Math.max(0, entry.holds - 1);
      return Promise.resolve();
    });
  }

  /** Removes a block that nobody holds. */
  forget(cid: string): Promise<void> {
    return this.#inTurn(async () => {
      const entry = this.#entries.get(cid);
      if (entry?.holds === 0) await this.#remove(cid, entry);
    });
  }

  async #read(cid: string): Promise<Uint8Array> {
    const bytes = await this.#shelf.read(cid);
    if (bytes === undefined) {
      throw new StoreError("BlockNotFound", `reading block ${cid}: it has disappeared`);
    }
    const name = await nameOf(bytes);
    if (name !== cid) {
      throw new StoreError(
        "CorruptBlock",
        `reading block ${cid}: its ${bytes.length} stored bytes are those of ${name}`,
      );
    }
    return bytes;
  }

  async #makeRoom(cid: string, needed: number): Promise<void> {
    for (const [name, entry] of [...this.#entries]) {
      if (this.#bytes + needed <= this.#maxBytes) return;
      if (entry.holds === 0) await this.#remove(name, entry);
    }
    if (this.#bytes + needed > this.#maxBytes) {
      throw new StoreError(
        "StoreFull",
        `keeping block ${cid}: it has ${needed} bytes, ${this.#bytes} of ${this.#maxBytes} are in use`,
      );
    }
  }

  async #remove(cid: string, entry: Entry): Promise<void> {
    this.#entries.delete(cid);
    this.#bytes -= entry.bytes;
    await this.#shelf.remove(cid);
  }

  #inTurn<T>(action: () => Promise<T>): Promise<T> {
    const run = this.#turn.then(action);
    this.#turn = run.catch(() => {});
    return run;
  }
}
