/**
 * The one block of shared WASM memory in which a process keeps its frames, so that bytes go from the
 * socket to the hash, the fold and the next socket without being copied.
 *
 * @module
 */
import { invariant } from "../wire/errors.ts";

const PAGE = 65_536;
/** Room in front for the stacks and scratch of WASM kernels. */
const RESERVED_PAGES = 16;
/** A wasm32 memory ends here; address space is reserved, pages are only taken when touched. */
const MAX_PAGES = 65_536;

interface Span {
  at: number;
  pages: number;
}

/** Hands out page-aligned runs of one shared WebAssembly.Memory, and takes them back. */
export class Arena {
  /** The memory to hand to WASM modules and workers. */
  readonly memory: WebAssembly.Memory;
  readonly #free: Span[] = [];
  readonly #taken = new Map<number, Span>();
  readonly #buffers = new WeakSet<ArrayBufferLike>();

  constructor() {
    this.memory = new WebAssembly.Memory({
      initial: RESERVED_PAGES,
      maximum: MAX_PAGES,
      shared: true,
    });
    this.#buffers.add(this.memory.buffer);
  }

  /**
   * A run of at least `length` bytes starting at a multiple of 64 KiB; its content is unspecified.
   *
   * @throws {RangeError} when the memory would pass 4 GiB.
   */
  alloc(length: number): Uint8Array<ArrayBufferLike> {
    const pages = Math.max(1, Math.ceil(length / PAGE));
    const index = this.#free.findIndex((span) => span.pages >= pages);
    let at: number;
    if (index >= 0) {
      const span = this.#free[index]!;
      at = span.at;
      if (span.pages === pages) this.#free.splice(index, 1);
      else {
        span.at += pages * PAGE;
        span.pages -= pages;
      }
    } else {
      const before = this.memory.buffer.byteLength / PAGE;
      if (before + pages > MAX_PAGES) {
        throw new RangeError(
          `taking ${length} bytes for a frame: this process already holds ${
            before * PAGE
          } of the ` +
            `${MAX_PAGES * PAGE} bytes that one WASM memory can have; use fewer ranks per relay`,
        );
      }
      this.memory.grow(pages);
      this.#buffers.add(this.memory.buffer);
      at = before * PAGE;
    }
    this.#taken.set(at, { at, pages });
    return new Uint8Array(this.memory.buffer, at, length);
  }

  /** Takes back a run that {@link Arena.alloc} returned. */
  free(run: Uint8Array<ArrayBufferLike>): void {
    const span = this.#taken.get(run.byteOffset);
    invariant(span !== undefined, `freeing ${run.byteOffset}, which was never taken`);
    this.#taken.delete(span.at);
    this.#free.push(span);
    this.#free.sort((a, b) => a.at - b.at);
    for (let i = this.#free.length - 1; i > 0; i--) {
      const left = this.#free[i - 1]!;
      const right = this.#free[i]!;
      if (left.at + left.pages * PAGE === right.at) {
        left.pages += right.pages;
        this.#free.splice(i, 1);
      }
    }
  }

  /** Whether `run` lies in this arena's memory, so that `run.byteOffset` is a WASM address. */
  owns(run: Uint8Array<ArrayBufferLike>): boolean {
    return this.#buffers.has(run.buffer);
  }

  /** Bytes of address space taken from the system so far. */
  get reserved(): number {
    return this.memory.buffer.byteLength;
  }
}
