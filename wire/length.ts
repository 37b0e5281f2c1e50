/**
 * The length prefix of the rank leg: u32 little-endian, then that many bytes.
 *
 * @module
 */
import { invariant, WireError } from "./errors.ts";
import { MAX_FRAME_BYTES } from "./limits.ts";

/** Bytes of a length prefix. */
export const LENGTH_BYTES = 4;

/** Writes `length`, at most {@link MAX_FRAME_BYTES}, at `at`. */
export function encodeLength(into: Uint8Array, at: number, length: number): void {
  // Above it the value would wrap, and the frame behind it would be cut where nobody notices.
  invariant(length >= 0 && length <= MAX_FRAME_BYTES, `a length prefix of ${length} bytes`);
  new DataView(into.buffer, into.byteOffset, into.byteLength).setUint32(at, length, true);
}

/**
 * Reads the length in the first 4 bytes.
 *
 * @param ceiling The most bytes a blob may have.
 * @throws {WireError} when fewer than 4 bytes came or the length is above the ceiling.
 */
export function decodeLength(bytes: Uint8Array, ceiling: number): number {
  if (bytes.length < LENGTH_BYTES) {
    throw new WireError(
      "truncated",
      "connection",
      `reading a length prefix: ${bytes.length} bytes came, expected ${LENGTH_BYTES}`,
    );
  }
  const length = new DataView(bytes.buffer, bytes.byteOffset, LENGTH_BYTES).getUint32(0, true);
  if (length > ceiling) {
    throw new WireError(
      "ceiling",
      "connection",
      `reading a length prefix: ${length} bytes announced, above the frame ceiling of ${ceiling}`,
    );
  }
  return length;
}
