/**
 * Seals: what binds every record or frame to this one connection and to its place in it, so that a
 * recorded connection cannot be played again, nor parts of it left out, repeated or put in another order.
 *
 * Each end draws a nonce; the key follows from the salt and both. A seal stands in the place of a tag:
 *
 *     key    first 16 bytes of HMAC-SHA256(salt, label, lower end's nonce, upper end's nonce)
 *            label: "tierfold seal 1" between relay and controller, "tierfold rank seal 1" below
 *     seal   tag64(key, u8 direction, u64 number, the own tag of the record or frame)
 *
 * That tag covers all bytes and is the same for whoever gets them: they are hashed once, and only these 17
 * bytes for each connection. Parts of a handshake have no tag: they are sealed whole. A record around a
 * frame is not hashed at all: {@link frameRecordTag} takes the place of its tag.
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

const LABELS = { relay: "tierfold seal 1", rank: "tierfold rank seal 1" } as const;

/** Which way a record goes. */
export type SealDirection = "up" | "down";

/**
 * The key of a connection's seals, from the salt and both nonces.
 *
 * @param lower Who is at the lower end of the connection.
 */
export function sealKey(
  salt: Uint8Array,
  lowerNonce: Uint8Array,
  upperNonce: Uint8Array,
  lower: keyof typeof LABELS = "relay",
): Uint8Array {
  const hmac = createHmac("sha256", salt).update(LABELS[lower]).update(lowerNonce).update(
    upperNonce,
  );
  return new Uint8Array(hmac.digest()).slice(0, SALT_BYTES);
}

/**
 * What a seal covers of a record that carries a frame: the record's header, and the frame's own tag, which
 * covers the rest. Whoever checks the seal has to verify that tag as well.
 *
 * @param signed The record's header in front of its tag, 17 bytes.
 * @param frameTag The last 8 bytes of the frame.
 */
export function frameRecordTag(
  salt: Uint8Array,
  signed: Uint8Array,
  frameTag: Uint8Array,
): Uint8Array {
  return tag64(salt, signed, frameTag);
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
      "checking a seal: these bytes are not of this connection, not in their place, or not whole; " +
        "expected what comes next here, got what was recorded, repeated, changed, or had another before it",
    );
  }
}
