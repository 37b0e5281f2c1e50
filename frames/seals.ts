/**
 * Seals on the wire: in a sealed connection a seal stands where the own tag of a record or frame would be.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { TAG_BYTES } from "../wire/limits.ts";

/** Up to so many bytes leave in one write with their seal. */
const ONE_WRITE_BYTES = 64 * 1024;

/** Writes to one connection, one after another. */
export class SealedPen {
  readonly #link: Link;
  /** Holds the part around a seal while it is written. */
  #part = new Uint8Array(0);

  constructor(link: Link) {
    this.#link = link;
  }

  /**
   * Writes bytes, with a seal in the place of their tag where the connection is sealed. The bytes may be
   * those of other connections as well: they stay as they are.
   *
   * @param tagAt Where the tag begins.
   * @param what What is being written, for errors.
   * @throws {TransportError} when the connection breaks.
   */
  async write(
    bytes: Uint8Array,
    tagAt: number,
    seal: Uint8Array | undefined,
    what: string,
  ): Promise<void> {
    const link = this.#link;
    if (seal === undefined) return await link.writeFully(bytes, what);
    // What stands on the shorter side of the tag leaves in one write with it.
    const rest = tagAt + TAG_BYTES;
    const early = bytes.length > ONE_WRITE_BYTES && tagAt > ONE_WRITE_BYTES ? tagAt : 0;
    const late = bytes.length > ONE_WRITE_BYTES && early === 0 ? rest : bytes.length;
    if (early > 0) await link.writeFully(bytes.subarray(0, early), what);
    if (this.#part.length < late - early) this.#part = new Uint8Array(late - early);
    const part = this.#part.subarray(0, late - early);
    part.set(bytes.subarray(early, late));
    part.set(seal, tagAt - early);
    await link.writeFully(part, what);
    if (late < bytes.length) await link.writeFully(bytes.subarray(late), what);
  }
}
