/**
 * The streaming tag of the wire: the first 8 bytes of HMAC-SHA256 under the session salt.
 *
 * node:crypto's HMAC is used because it streams, and reads views of shared memory.
 *
 * @module
 */
import { createHmac, type Hmac } from "node:crypto";
import { timingSafeEqual } from "@std/crypto/timing-safe-equal";
import { SALT_BYTES, TAG_BYTES } from "./limits.ts";
import { invariant } from "./errors.ts";

/** A tag under construction: bytes go in as they come, 8 bytes come out once. */
export class Tag64 {
  readonly #hmac: Hmac;

  /** @param salt The session salt, 16 bytes. */
  constructor(salt: Uint8Array) {
    invariant(salt.length === SALT_BYTES, `a salt has ${SALT_BYTES} bytes, not ${salt.length}`);
    this.#hmac = createHmac("sha256", salt);
  }

  /** Takes the next bytes; they are read before this returns. */
  update(bytes: Uint8Array): this {
    this.#hmac.update(bytes);
    return this;
  }

  /** The tag of everything taken; the object is spent. */
  digest(): Uint8Array {
    return new Uint8Array(this.#hmac.digest()).subarray(0, TAG_BYTES);
  }
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
  return a.length === b.length && timingSafeEqual(Uint8Array.from(a), Uint8Array.from(b));
}
