/**
 * The streaming tag of the wire: the first 8 bytes of HMAC-SHA256 (RFC 2104) under the session salt.
 *
 * node:crypto's SHA-256 is used because it streams, and reads views of shared memory. Its HMAC is not: it
 * prepares the key anew for every tag, which takes longer than hashing a small frame.
 *
 * @module
 */
import { createHash, type Hash } from "node:crypto";
import { timingSafeEqual } from "@std/crypto/timing-safe-equal";
import { SALT_BYTES, TAG_BYTES } from "./limits.ts";
import { invariant } from "./errors.ts";

/** Bytes that SHA-256 takes at once. */
const BLOCK_BYTES = 64;
/** Bytes that it gives. */
const DIGEST_BYTES = 32;

/** What HMAC hashes before anything else, inside and outside, for one key. */
interface Prepared {
  readonly inner: Hash;
  readonly outer: Hash;
}

/** A salt's bytes do not change once it is in use. */
const prepared = new WeakMap<Uint8Array, Prepared>();

function prepare(salt: Uint8Array): Prepared {
  invariant(salt.length === SALT_BYTES, `a salt has ${SALT_BYTES} bytes, not ${salt.length}`);
  const padded = (pad: number) => {
    const block = new Uint8Array(BLOCK_BYTES).fill(pad);
    for (const [i, byte] of salt.entries()) block[i] = byte ^ pad;
    return createHash("sha256").update(block);
  };
  return { inner: padded(0x36), outer: padded(0x5c) };
}

/** A tag under construction: bytes go in as they come, 8 bytes come out once. */
export class Tag64 {
  readonly #inner: Hash;
  readonly #outer: Hash;

  /** @param salt The session salt, 16 bytes. */
  constructor(salt: Uint8Array) {
    let state = prepared.get(salt);
    if (state === undefined) prepared.set(salt, state = prepare(salt));
    this.#inner = state.inner.copy();
    this.#outer = state.outer;
  }

  /** Takes the next bytes; they are read before this returns. */
  update(bytes: Uint8Array): this {
    this.#inner.update(bytes);
    return this;
  }

  /** The tag of everything taken; the object is spent. */
  digest(): Uint8Array {
    // As hex, a digest is had without a Buffer, which costs more than the hash of a small frame.
    const inside = fromHex(this.#inner.digest("hex"), DIGEST_BYTES);
    return fromHex(this.#outer.copy().update(inside).digest("hex"), TAG_BYTES);
  }
}

/** The first `count` bytes that a text of lower-case hex digits stands for. */
function fromHex(text: string, count: number): Uint8Array {
  // 0 to 9 have codes of 0x30 and up, a to f those of 0x61 and up.
  const digit = (at: number) => (text.charCodeAt(at) & 15) + 9 * (text.charCodeAt(at) >> 6);
  const bytes = new Uint8Array(count);
  for (let i = 0; i < count; i++) bytes[i] = digit(2 * i) << 4 | digit(2 * i + 1);
  return bytes;
}

/** The tag of the given pieces, one after another. */
export function tag64(salt: Uint8Array, ...pieces: Uint8Array[]): Uint8Array {
  const tag = new Tag64(salt);
  for (const piece of pieces) tag.update(piece);
  return tag.digest();
}

/** Whether two tags are equal, in time that does not depend on where they differ. */
export function tagsEqual(a: Uint8Array, b: Uint8Array): boolean {
  // The comparison refuses shared memory, hence the copies of these 8 bytes.
  return a.length === b.length && timingSafeEqual(a.slice(), b.slice());
}
