/**
 * Seals: what binds every record of a channel to this one connection and to its place in it, so that a
 * recorded connection cannot be played again, nor its records left out, repeated or put in another order.
 *
 * Each end draws a nonce; the key follows from the salt and both. A seal follows its record:
 *
 *     key    first 16 bytes of HMAC-SHA256(salt, "tierfold seal 1", relay's nonce, controller's nonce)
 *     seal   tag64(key, u8 direction, u64 number of the record, the record's own tag)
 *
 * The record's tag covers its bytes and is the same for whoever gets them: they are hashed once, and only
 * these 17 bytes for each connection.
 *
 * @module
 */
import { createHmac } from "node:crypto";
import { WireError } from "./errors.ts";
import { SALT_BYTES, TAG_BYTES } from "./limits.ts";
import { tag64, tagsEqual } from "./mac.ts";

/** Bytes of a nonce. */
export const NONCE_BYTES = 16;
/** Bytes of a seal. */
export const SEAL_BYTES = TAG_BYTES;

const LABEL = new TextEncoder().encode("tierfold seal 1");

/** Which way a record goes. */
export type SealDirection = "up" | "down";

/** The key of a connection's seals, from the salt and both nonces. */
export function sealKey(
  salt: Uint8Array,
  relayNonce: Uint8Array,
  controllerNonce: Uint8Array,
): Uint8Array {
  const hmac = createHmac("sha256", salt).update(LABEL).update(relayNonce).update(controllerNonce);
  return new Uint8Array(hmac.digest()).slice(0, SALT_BYTES);
}

/** The seals of one direction, in the order of its records. */
export class Seals {
  readonly #key: Uint8Array;
  readonly #head = new Uint8Array(9);
  #number = 0n;

  /**
   * @param key Of the connection; see {@link sealKey}.
   * @param direction "up" goes to the controller.
   */
  constructor(key: Uint8Array, direction: SealDirection) {
    this.#key = key;
    this.#head[0] = direction === "up" ? 1 : 2;
  }

  /** The seal of the next record, whose own tag is `tag`. */
  next(tag: Uint8Array): Uint8Array {
    new DataView(this.#head.buffer).setBigUint64(1, this.#number++, true);
    return tag64(this.#key, this.#head, tag);
  }

  /**
   * Checks the seal of the next record.
   *
   * @throws {WireError} when it is another one.
   */
  expect(tag: Uint8Array, seal: Uint8Array): void {
    if (tagsEqual(this.next(tag), seal)) return;
    throw new WireError(
      "mac",
      "connection",
      "checking the seal of a record: it is not of this connection, or not in its place; expected the " +
        "next record of this session, got one that was recorded, left out or repeated",
    );
  }
}
