/**
 * What a relay tells a rank that asked for the consensus, right after its answer to the handshake. A rank
 * asks by adding {@link CATCH_UP} to the protocol version of its handshake; the answer has it as well.
 *
 *      0  u64 rounds        that had been when the consensus came out; 0: none has been
 *      8  u32 length        of the frame that follows; 0: there is none
 *     12  tag64(salt, bytes 0-11)
 *     20  RoundFrame        the last Model round's result, as everybody got it
 *
 * @module
 */
import { WireError } from "./errors.ts";
import { TAG_BYTES } from "./limits.ts";
import { tag64, tagsEqual } from "./mac.ts";
import type { Seals } from "./seal.ts";

/** Added to the protocol version by a rank that asks for the consensus. */
export const CATCH_UP = 0x100;
/** Bytes in front of the frame. */
export const CATCH_UP_BYTES = 12 + TAG_BYTES;

/** What is said in front of the frame. */
export interface CatchUpHeader {
  /** How many rounds the session had had when the consensus came out; 0: it had none. */
  rounds: number;
  /** Bytes of the frame; 0: there is none. */
  length: number;
}

/** Encodes it into 20 fresh bytes. */
export function encodeCatchUp({ rounds, length }: CatchUpHeader, salt: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(CATCH_UP_BYTES);
  const out = new DataView(bytes.buffer);
  out.setBigUint64(0, BigInt(rounds), true);
  out.setUint32(8, length, true);
  bytes.set(tag64(salt, bytes.subarray(0, 12)), 12);
  return bytes;
}

/**
 * Decodes 20 bytes of it.
 *
 * @param ceiling The most bytes of a frame.
 * @param seals Where the connection is sealed: what stands in the place of the tag.
 * @throws {WireError} when they are not authentic, or announce a longer frame.
 */
export function decodeCatchUp(
  bytes: Uint8Array,
  salt: Uint8Array,
  ceiling: number,
  seals?: Seals,
): CatchUpHeader {
  const refuse = (code: "truncated" | "mac" | "ceiling", text: string) =>
    new WireError(code, "connection", `reading what the relay says of the consensus: ${text}`);
  if (bytes.length !== CATCH_UP_BYTES) {
    throw refuse("truncated", `${bytes.length} bytes came, expected ${CATCH_UP_BYTES}`);
  }
  const tag = tag64(salt, bytes.subarray(0, 12));
  if (seals !== undefined) seals.expect(tag, bytes.subarray(12));
  else if (!tagsEqual(tag, bytes.subarray(12))) {
    throw refuse("mac", "its MAC does not match; the salts of the two processes differ");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(8, true);
  if (length > ceiling) {
    throw refuse("ceiling", `a frame of ${length} bytes, above the ceiling of ${ceiling}`);
  }
  return { rounds: Number(view.getBigUint64(0, true)), length };
}
