/**
 * The DWE fragment: changes to add to some layers' weights, signed with the fleet's key.
 *
 * bincode 1.3 layout, everything little-endian; a string or list is a u64 length and its items:
 *
 *     string schema                "axiom.dwe.v1"
 *     string session_id
 *     u64    sequence
 *     list   layers:               u64 layer_index; list of u64 shape; list of f32 values
 *     string state_hash            SHA-256, hex, of layer_index, dims and values of every layer
 *     option hmac                  0, or 1 and a string: HMAC-SHA256, hex, of everything above
 *
 * On TCP a fragment follows its u32 length.
 *
 * @module
 */
import { createHash, createHmac } from "node:crypto";
import { timingSafeEqual } from "@std/crypto/timing-safe-equal";
import { type FixedFault, FixedReader, FixedWriter } from "./bincode_fixed.ts";

/** What every fragment starts with. */
export const DWE_SCHEMA = "axiom.dwe.v1";
/** Most bytes of an encoded fragment. */
export const DWE_MAX_BYTES = 8 * 1024 ** 2;
/** Bytes of the length in front of a fragment on TCP. */
export const DWE_LENGTH_BYTES = 4;

/** Least bytes of a layer: its index and two empty lists. */
const LAYER_FIXED_BYTES = 24;
const HEX_DIGEST_CHARS = 64;

/** Why fragments were refused. */
export type DweErrorCode =
  | "Truncated"
  | "Trailing"
  | "Malformed"
  | "Schema"
  | "Oversized"
  | "Unsigned"
  | "BadSignature"
  | "StateHash"
  | "Repeated"
  | "OutOfOrder"
  | "UnknownLayer"
  | "ShapeMismatch";

/** A fragment that cannot be read, believed or applied. */
export class DweError extends Error {
  /** "DweError". */
  override readonly name = "DweError";
  /** The cause. */
  readonly code: DweErrorCode;

  /** Builds the error from its cause and from what was being done, expected, and found. */
  constructor(code: DweErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Values to add to one layer. */
export interface DweLayer {
  /** Which layer, an integer in 0..2^53-1. */
  readonly layerIndex: number;
  /** Dims of the values. */
  readonly shape: readonly number[];
  /** f32 values, row-major. */
  readonly values: Float32Array;
}

/** The parts of a fragment that its sender chooses. */
export interface DweContent {
  /** Names the run of the sender. */
  readonly sessionId: string;
  /** Grows from fragment to fragment of a sender; u64. */
  readonly sequence: bigint;
  /** The layers it changes. */
  readonly layers: readonly DweLayer[];
}

/** A whole fragment. */
export interface DweFragment extends DweContent {
  /** SHA-256 of the layers, lower-case hex, as the sender gave it. */
  readonly stateHash: string;
  /** HMAC-SHA256 under the fleet key, lower-case hex; undefined when unsigned. */
  readonly hmac: string | undefined;
}

/** A fragment, and the very bytes that its signature covers. */
export interface DecodedDwe {
  /** The values. */
  readonly fragment: DweFragment;
  /** A view of the encoding of schema, session_id, sequence, layers and state_hash. */
  readonly signedBytes: Uint8Array;
}

/** The keys that a receiver accepts; none at all means that nothing is checked. */
export interface FleetKeys {
  /** The key in force; also the one to sign with. */
  readonly current?: Uint8Array | undefined;
  /** The key before it, accepted while a rotation is under way. */
  readonly previous?: Uint8Array | undefined;
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** SHA-256 over, per layer, its index and every dim as u64 and every value as f32; lower-case hex. */
export function dweStateHash(layers: readonly DweLayer[]): string {
  const hash = createHash("sha256");
  for (const { layerIndex, shape, values } of layers) {
    const words = new FixedWriter(8 * (1 + shape.length)).u64(layerIndex);
    for (const dim of shape) words.u64(dim);
    hash.update(words.finish());
    hash.update(bytesOf(values));
  }
  return hash.digest("hex");
}

function hmacHex(key: Uint8Array, bytes: Uint8Array): string {
  return createHmac("sha256", key).update(bytes).digest("hex");
}

/**
 * Bytes that a fragment takes once encoded and signed.
 *
 * @param sessionId Its session.
 * @param layers The number of dims and of values of each layer.
 */
export function dweEncodedBytes(
  sessionId: string,
  layers: Iterable<{ ndim: number; valueCount: number }>,
): number {
  const session = new TextEncoder().encode(sessionId).length;
  let bytes = 8 + DWE_SCHEMA.length + 8 + session + 8 + 8 + (8 + HEX_DIGEST_CHARS) * 2 + 1;
  for (const { ndim, valueCount } of layers) bytes += LAYER_FIXED_BYTES + 8 * ndim + 4 * valueCount;
  return bytes;
}

/** Writes all up to the state hash; `tail` more bytes are left for the caller to write. */
function writeSigned(content: DweContent, stateHash: string, tail: number): FixedWriter {
  const utf8 = new TextEncoder();
  const strings = [DWE_SCHEMA, content.sessionId, stateHash].map((text) => utf8.encode(text));
  const [schema, session, hash] = strings as [Uint8Array, Uint8Array, Uint8Array];
  let length = strings.reduce((sum, bytes) => sum + 8 + bytes.length, 16 + tail);
  for (const { shape, values } of content.layers) {
    length += LAYER_FIXED_BYTES + 8 * shape.length + values.byteLength;
  }
  const out = new FixedWriter(length).counted(schema).counted(session).u64(content.sequence);
  out.u64(content.layers.length);
  for (const { layerIndex, shape, values } of content.layers) {
    out.u64(layerIndex).u64(shape.length);
    for (const dim of shape) out.u64(dim);
    out.u64(values.length).raw(bytesOf(values));
  }
  return out.counted(hash);
}

/** Encodes a fragment as it is, whatever its hash and signature say. */
export function encodeDwe(fragment: DweFragment): Uint8Array<ArrayBuffer> {
  const { hmac } = fragment;
  if (hmac === undefined) return writeSigned(fragment, fragment.stateHash, 1).u8(0).finish();
  const signature = new TextEncoder().encode(hmac);
  const out = writeSigned(fragment, fragment.stateHash, 9 + signature.length);
  return out.u8(1).counted(signature).finish();
}

/**
 * Hashes, signs and encodes a fragment.
 *
 * @param key The fleet key; undefined leaves the fragment unsigned.
 * @throws {DweError} Oversized above 8 MiB.
 */
export function sealDwe(content: DweContent, key: Uint8Array | undefined): Uint8Array<ArrayBuffer> {
  const stateHash = dweStateHash(content.layers);
  const out = writeSigned(content, stateHash, key === undefined ? 1 : 9 + HEX_DIGEST_CHARS);
  if (key === undefined) out.u8(0);
  else {
    const hmac = hmacHex(key, out.written);
    out.u8(1).counted(new TextEncoder().encode(hmac));
  }
  const bytes = out.finish();
  checkDweLength(bytes.length);
  return bytes;
}

/**
 * Checks an announced length before anything is read or allocated for it.
 *
 * @throws {DweError} Oversized above 8 MiB.
 */
export function checkDweLength(length: number): void {
  if (length > DWE_MAX_BYTES) {
    throw new DweError(
      "Oversized",
      `a DWE fragment of ${length} bytes: at most ${DWE_MAX_BYTES} are allowed`,
    );
  }
}

const FAULTS: Readonly<Record<FixedFault, DweErrorCode>> = {
  truncated: "Truncated",
  range: "Malformed",
  text: "Malformed",
  option: "Malformed",
};

function fault(kind: FixedFault, message: string): DweError {
  const cut = kind === "truncated" ? "truncated: " : "";
  return new DweError(FAULTS[kind], `reading a DWE fragment: ${cut}${message}`);
}

function readLayer(reader: FixedReader, i: number): DweLayer {
  const layerIndex = reader.uint(`layer_index of layer ${i}`);
  const ndim = reader.count(`the number of dims of layer ${i}`, 8);
  const shape: number[] = [];
  for (let dim = 0; dim < ndim; dim++) shape.push(reader.uint(`dim ${dim} of layer ${i}`));
  const count = reader.count(`the number of values of layer ${i}`, 4);
  const values = new Float32Array(count);
  new Uint8Array(values.buffer).set(reader.raw(`the values of layer ${i}`, 4 * count));
  return { layerIndex, shape, values };
}

/**
 * Decodes a whole fragment without believing it; the values are copies.
 *
 * @throws {DweError} Oversized, Truncated, Trailing, Malformed, Schema.
 */
export function decodeDwe(bytes: Uint8Array): DecodedDwe {
  checkDweLength(bytes.length);
  const reader = new FixedReader(bytes, fault);
  const schema = reader.string("schema");
  if (schema !== DWE_SCHEMA) {
    throw new DweError(
      "Schema",
      `reading a DWE fragment: its schema is ${JSON.stringify(schema.slice(0, 64))}, ` +
        `not "${DWE_SCHEMA}"`,
    );
  }
  const sessionId = reader.string("session_id");
  const sequence = reader.u64("sequence");
  const count = reader.count("the number of layers", LAYER_FIXED_BYTES);
  const layers: DweLayer[] = [];
  for (let i = 0; i < count; i++) layers.push(readLayer(reader, i));
  const stateHash = reader.string("state_hash");
  const signedBytes = bytes.subarray(0, reader.at);
  const hmac = reader.flag("hmac") ? reader.string("hmac") : undefined;
  if (reader.remaining > 0) {
    throw new DweError(
      "Trailing",
      `reading a DWE fragment: ${reader.remaining} bytes follow its end at ${reader.at}`,
    );
  }
  return { fragment: { sessionId, sequence, layers, stateHash, hmac }, signedBytes };
}

/** Whether two strings are equal, in time that depends on their lengths only. */
function equalInConstantTime(a: string, b: string): boolean {
  const encoder = new TextEncoder();
  const [left, right] = [encoder.encode(a), encoder.encode(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/**
 * Checks a fragment's signature against the current key, then against the previous one. Without any
 * key there is nothing to check against, and signed and unsigned fragments pass alike.
 *
 * @returns Which key matched; undefined when there is no key.
 * @throws {DweError} Unsigned, BadSignature.
 */
export function verifyDwe(
  decoded: DecodedDwe,
  keys: FleetKeys,
): "current" | "previous" | undefined {
  const { current, previous } = keys;
  if (current === undefined && previous === undefined) return undefined;
  const { hmac, sessionId, sequence } = decoded.fragment;
  const which = `DWE fragment ${sequence} of session ${JSON.stringify(sessionId.slice(0, 80))}`;
  if (hmac === undefined) {
    throw new DweError("Unsigned", `verifying ${which}: it is unsigned, and a fleet key is set`);
  }
  for (const name of ["current", "previous"] as const) {
    const key = keys[name];
    if (key !== undefined && equalInConstantTime(hmac, hmacHex(key, decoded.signedBytes))) {
      return name;
    }
  }
  const tried = previous === undefined ? "the fleet key" : "the fleet key and the previous one";
  throw new DweError(
    "BadSignature",
    `verifying ${which}: hmac verification failed against ${tried}`,
  );
}

/**
 * Checks that the layers are those that the sender hashed.
 *
 * @throws {DweError} StateHash.
 */
export function checkDweStateHash(fragment: DweFragment): void {
  const hash = dweStateHash(fragment.layers);
  if (!equalInConstantTime(hash, fragment.stateHash)) {
    throw new DweError(
      "StateHash",
      `checking DWE fragment ${fragment.sequence}: its layers hash to ${hash}, its state_hash says ` +
        JSON.stringify(fragment.stateHash.slice(0, 80)),
    );
  }
}

/**
 * Decodes a fragment and believes it only after its signature and its state hash were checked.
 *
 * ```ts
 * import { assertEquals, assertThrows } from "@std/assert";
 * import { DweError, openDwe, sealDwe } from "@tierfold/tierfold";
 *
 * const layers = [{ layerIndex: 0, shape: [2], values: new Float32Array([0.5, -1]) }];
 * const key = new TextEncoder().encode("fleet-secret");
 * const bytes = sealDwe({ sessionId: "run-1", sequence: 1n, layers }, key);
 * assertEquals(openDwe(bytes, { current: key }).layers, layers);
 * bytes[bytes.length - 100]! ^= 1;
 * assertThrows(() => openDwe(bytes, { current: key }), DweError);
 * ```
 *
 * @throws {DweError} Oversized, Truncated, Trailing, Malformed, Schema, Unsigned, BadSignature, StateHash.
 */
export function openDwe(bytes: Uint8Array, keys: FleetKeys): DweFragment {
  const decoded = decodeDwe(bytes);
  verifyDwe(decoded, keys);
  checkDweStateHash(decoded.fragment);
  return decoded.fragment;
}
