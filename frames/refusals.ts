/**
 * Reading why the other end refuses us.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { decodeRefusal, REFUSAL_HEADER_BYTES, refusalTextLength } from "../wire/refusal.ts";

/**
 * Reads the rest of a refusal.
 *
 * @param start The bytes of it that were read already; see {@link ../wire/refusal.ts}.
 * @returns What to put after "refused us": the reason, or why there is none.
 * @throws {TransportError} when the stream breaks.
 */
export async function readRefusal(
  link: Link,
  start: Uint8Array,
  salt: Uint8Array,
): Promise<string> {
  const what = "the reason for a refusal";
  const header = new Uint8Array(REFUSAL_HEADER_BYTES);
  header.set(start);
  if (!await link.readFully(header.subarray(start.length), what)) {
    return "without a reason; its log says why";
  }
  const length = refusalTextLength(header);
  if (length === undefined) return "with an unreadable reason; its log says why";
  const note = new Uint8Array(REFUSAL_HEADER_BYTES + length);
  note.set(header);
  if (length > 0) await link.readFully(note.subarray(REFUSAL_HEADER_BYTES), what);
  const text = decodeRefusal(note, salt);
  return text === undefined
    ? "with a reason that is not signed with our salt: the salts of the two processes differ"
    : `because: ${text}`;
}
