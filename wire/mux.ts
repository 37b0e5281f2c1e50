/**
 * Records of the relay leg: everything between a relay and the controller after the channel magic.
 *
 *      0  u32 magic 0xF10D17D0
 *      4  u32 version 1
 *      8  u8  kind          1 Data, 2 Control, 3 HostFrame, 4 Broadcast
 *      9  u32 rank          0 except for Data
 *     13  u32 payload length
 *     17  tag64(salt, bytes 0-16 + payload)
 *     25  payload
 *
 * All little-endian. Format: flodl 0.6.0.
 *
 * @module
 */
import { invariant, WireError } from "./errors.ts";
import { MAX_FRAME_BYTES, TAG_BYTES } from "./limits.ts";
import { tag64, tagsEqual } from "./mac.ts";
import { strangerHint } from "./stranger.ts";

/** What a relay sends first on its channel to the controller. */
export const CHANNEL_MAGIC = 0xf10d17e1;
/** First word of a record. */
export const RECORD_MAGIC = 0xf10d17d0;
/** The only record version. */
export const RECORD_VERSION = 1;

/** Bytes of the channel magic. */
export const CHANNEL_MAGIC_BYTES = 4;
/** Bytes of a record in front of its tag, the part that the tag covers. */
export const RECORD_SIGNED_BYTES = 17;
/** Bytes of a record in front of its payload. */
export const RECORD_HEADER_BYTES = RECORD_SIGNED_BYTES + TAG_BYTES;

/** What a record carries. */
export type RecordKind = "data" | "control" | "host_frame" | "broadcast";

const KINDS: readonly (RecordKind | undefined)[] = [
  undefined,
  "data",
  "control",
  "host_frame",
  "broadcast",
];

/** The header of a record. */
export interface RecordHeader {
  kind: RecordKind;
  /** The rank of a Data record; 0 otherwise. */
  rank: number;
  /** Bytes of the payload. */
  length: number;
}

/** Encodes the channel magic. */
export function encodeChannelMagic(): Uint8Array {
  const bytes = new Uint8Array(CHANNEL_MAGIC_BYTES);
  new DataView(bytes.buffer).setUint32(0, CHANNEL_MAGIC, true);
  return bytes;
}

/**
 * Checks the channel magic.
 *
 * @throws {WireError} when it is another value or not 4 bytes.
 */
export function decodeChannelMagic(bytes: Uint8Array): void {
  const magic = bytes.length === CHANNEL_MAGIC_BYTES
    ? new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true)
    : undefined;
  if (magic !== CHANNEL_MAGIC) {
    throw new WireError(
      magic === undefined ? "truncated" : "magic",
      "connection",
      `reading the channel magic: ${
        magic === undefined ? `${bytes.length} bytes` : `0x${magic.toString(16)}`
      } came, expected 0x${CHANNEL_MAGIC.toString(16)}${strangerHint(magic ?? 0)}`,
    );
  }
}

/** Writes the 17 signed bytes of a record's header at the start of `into`. */
export function encodeRecordStart(into: Uint8Array, header: RecordHeader): void {
  const { length } = header;
  invariant(length >= 0 && length <= MAX_FRAME_BYTES, `a record's payload of ${length} bytes`);
  const view = new DataView(into.buffer, into.byteOffset, into.byteLength);
  view.setUint32(0, RECORD_MAGIC, true);
  view.setUint32(4, RECORD_VERSION, true);
  view.setUint8(8, KINDS.indexOf(header.kind));
  view.setUint32(9, header.rank, true);
  view.setUint32(13, header.length, true);
}

/** Encodes a whole record into fresh bytes, for payloads that are small. */
export function encodeRecord(
  kind: RecordKind,
  rank: number,
  payload: Uint8Array,
  salt: Uint8Array,
): Uint8Array {
  const bytes = new Uint8Array(RECORD_HEADER_BYTES + payload.length);
  encodeRecordStart(bytes, { kind, rank, length: payload.length });
  bytes.set(tag64(salt, bytes.subarray(0, RECORD_SIGNED_BYTES), payload), RECORD_SIGNED_BYTES);
  bytes.set(payload, RECORD_HEADER_BYTES);
  return bytes;
}

/**
 * Decodes the 25 bytes in front of a payload. The length is bounded but not yet authenticated: the tag
 * covers the payload too.
 *
 * @param ceiling The most bytes of a payload.
 * @throws {WireError} on a wrong magic, version, kind or length.
 */
export function decodeRecordHeader(bytes: Uint8Array, ceiling: number): RecordHeader {
  const refuse = (code: "magic" | "version" | "kind" | "ceiling" | "truncated", text: string) =>
    new WireError(code, "connection", `reading a record's header: ${text}`);
  if (bytes.length < RECORD_HEADER_BYTES) {
    throw refuse("truncated", `${bytes.length} bytes came, expected ${RECORD_HEADER_BYTES}`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = view.getUint32(0, true);
  if (magic !== RECORD_MAGIC) {
    const text = `magic 0x${magic.toString(16)}, expected 0x${RECORD_MAGIC.toString(16)}`;
    throw refuse("magic", text + strangerHint(magic));
  }
  const version = view.getUint32(4, true);
  if (version !== RECORD_VERSION) {
    throw refuse("version", `version ${version}, expected ${RECORD_VERSION}`);
  }
  const kind = KINDS[view.getUint8(8)];
  if (kind === undefined) {
    throw refuse("kind", `unknown record kind ${view.getUint8(8)}, expected 1-4`);
  }
  const length = view.getUint32(13, true);
  if (length > ceiling) {
    throw refuse("ceiling", `${length} bytes announced, above the frame ceiling of ${ceiling}`);
  }
  return { kind, rank: view.getUint32(9, true), length };
}

/** The error for a record whose tag does not match. */
export function recordMacError(header: RecordHeader): WireError {
  return new WireError(
    "mac",
    "connection",
    `verifying a ${header.kind} record of ${header.length} bytes: its MAC does not match; the ` +
      "salts of the two processes differ, or bytes were changed on the way",
  );
}

/**
 * Decodes one whole record from contiguous bytes.
 *
 * @returns The header and a view of the payload.
 * @throws {WireError} when anything but exactly one authentic record is there.
 */
export function decodeRecord(
  bytes: Uint8Array,
  salt: Uint8Array,
  ceiling: number,
): { header: RecordHeader; payload: Uint8Array } {
  const header = decodeRecordHeader(bytes, ceiling);
  const payload = bytes.subarray(RECORD_HEADER_BYTES);
  if (payload.length !== header.length) {
    throw new WireError(
      payload.length < header.length ? "truncated" : "trailing",
      "connection",
      `reading a ${header.kind} record: ${payload.length} bytes of payload came, expected ` +
        `${header.length}`,
    );
  }
  const tag = tag64(salt, bytes.subarray(0, RECORD_SIGNED_BYTES), payload);
  if (!tagsEqual(tag, bytes.subarray(RECORD_SIGNED_BYTES, RECORD_HEADER_BYTES))) {
    throw recordMacError(header);
  }
  return { header, payload };
}
