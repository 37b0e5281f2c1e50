/**
 * The note with which a Tierfold peer says why it closes a connection. Sent where an acknowledgement,
 * a length or a record would stand; a peer that does not know it sees an impossible value and closes
 * as well, which is all that a plain peer ever learns.
 *
 *      0  u32 0xFFFFFFFF
 *      4  u32 length n of the text, at most 1,024
 *      8  tag64(salt, text)
 *     16  n bytes of UTF-8
 *
 * The tag keeps strangers from putting words into a log.
 *
 * @module
 */
import { MAX_REFUSAL_BYTES, TAG_BYTES } from "./limits.ts";
import { tag64, tagsEqual } from "./mac.ts";

/** First word of a note; no length, record or acknowledgement can have this value. */
export const REFUSAL_MARK = 0xffff_ffff;
/** Bytes in front of the text. */
export const REFUSAL_HEADER_BYTES = 8 + TAG_BYTES;

/** Encodes a note; a text longer than the limit is cut at a character. */
export function encodeRefusal(reason: string, salt: Uint8Array): Uint8Array {
  let text = new TextEncoder().encode(reason);
  if (text.length > MAX_REFUSAL_BYTES) {
    let end = MAX_REFUSAL_BYTES;
    while ((text[end]! & 0xc0) === 0x80) end--;
    text = text.subarray(0, end);
  }
  const bytes = new Uint8Array(REFUSAL_HEADER_BYTES + text.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, REFUSAL_MARK, true);
  view.setUint32(4, text.length, true);
  bytes.set(tag64(salt, text), 8);
  bytes.set(text, REFUSAL_HEADER_BYTES);
  return bytes;
}

/** Whether the first 4 bytes of `bytes` start a note. */
export function isRefusal(bytes: Uint8Array): boolean {
  return bytes.length >= 4 &&
    new DataView(bytes.buffer, bytes.byteOffset, 4).getUint32(0, true) === REFUSAL_MARK;
}

/**
 * The length of a note's text, from its header.
 *
 * @returns undefined when the header announces more than the limit.
 */
export function refusalTextLength(header: Uint8Array): number | undefined {
  const length = new DataView(header.buffer, header.byteOffset, header.byteLength)
    .getUint32(4, true);
  return length <= MAX_REFUSAL_BYTES ? length : undefined;
}

/** The text of a whole note, or undefined when its tag is not one of our session's. */
export function decodeRefusal(bytes: Uint8Array, salt: Uint8Array): string | undefined {
  if (bytes.length < REFUSAL_HEADER_BYTES || !isRefusal(bytes)) return undefined;
  const text = bytes.slice(REFUSAL_HEADER_BYTES);
  if (refusalTextLength(bytes) !== text.length) return undefined;
  if (!tagsEqual(tag64(salt, text), bytes.subarray(8, REFUSAL_HEADER_BYTES))) return undefined;
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(text);
}
