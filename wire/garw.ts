/**
 * The GARW gradient block: one layer's values of one peer, and how many samples stand behind them.
 *
 *     0   4 bytes "GARW"
 *     4   u32 ndim
 *     8   u32 x ndim               shape
 *         u32 number of values
 *         f32 x values
 *         u32 num_samples
 *
 * All little-endian. A block's name (CID) is "grad-" and the 64-bit FNV-1a of the block as it would be
 * with shape [number of values], so that it depends neither on the shape nor on the layer's name.
 *
 * @module
 */
import { Fnv1a64 } from "./fnv.ts";

const MAGIC = Uint8Array.of(0x47, 0x41, 0x52, 0x57);
/** Bytes of a block without its dims and values. */
const FIXED_BYTES = 16;
/** Largest num_samples of a block. */
export const GARW_MAX_SAMPLES = 0xffff_ffff;
/** What a CID looks like. */
export const GARW_CID = /^grad-[0-9a-f]{16}$/;

/** Why blocks were refused. */
export type GarwErrorCode =
  | "EmptyInput"
  | "ShapeMismatch"
  | "InvalidMagic"
  | "TruncatedData"
  | "TrailingData";

/** Blocks that cannot be read, or cannot be averaged with each other. */
export class GarwError extends Error {
  /** "GarwError". */
  override readonly name = "GarwError";
  /** The cause. */
  readonly code: GarwErrorCode;

  /** Builds the error from its cause and from what was being done, expected, and found. */
  constructor(code: GarwErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** One layer of one peer. */
export interface GarwBlock {
  /** Dims as the sender gave them; the format does not tie their product to the number of values. */
  readonly shape: readonly number[];
  /** f32 values, row-major. */
  readonly values: Float32Array;
  /** Samples behind the values, an integer in 0..4,294,967,295. */
  readonly numSamples: number;
}

/** Where the parts of an encoded block lie. */
export interface GarwLayout {
  /** Dims as the sender gave them. */
  readonly shape: readonly number[];
  /** How many f32 values the block holds. */
  readonly valueCount: number;
  /** Offset of the first value. */
  readonly valuesAt: number;
  /** Samples behind the values. */
  readonly numSamples: number;
}

function truncated(field: string, expected: number, left: number): GarwError {
  return new GarwError(
    "TruncatedData",
    `reading ${field} of a gradient block: ${expected} bytes expected, ${left} left`,
  );
}

/**
 * Reads everything of a block but its values; nothing is allocated beyond the dims that are there.
 *
 * @throws {GarwError} InvalidMagic, TruncatedData, TrailingData.
 */
export function parseGarw(bytes: Uint8Array): GarwLayout {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (field: string, length: number): number => {
    if (length > bytes.length - at) throw truncated(field, length, bytes.length - at);
    at += length;
    return at - length;
  };
  take("the magic", 4);
  if (MAGIC.some((byte, i) => bytes[i] !== byte)) {
    const hex = [...bytes.subarray(0, 4)].map((byte) => byte.toString(16).padStart(2, "0")).join(
      " ",
    );
    throw new GarwError(
      "InvalidMagic",
      `reading a gradient block: it starts with the bytes ${hex}, not with "GARW"`,
    );
  }
  const ndim = view.getUint32(take("the number of dims", 4), true);
  const dimsAt = take(`the ${ndim} dims`, 4 * ndim);
  const shape: number[] = [];
  for (let i = 0; i < ndim; i++) shape.push(view.getUint32(dimsAt + 4 * i, true));
  const valueCount = view.getUint32(take("the number of values", 4), true);
  const valuesAt = take(`the ${valueCount} values`, 4 * valueCount);
  const numSamples = view.getUint32(take("num_samples", 4), true);
  if (at !== bytes.length) {
    throw new GarwError(
      "TrailingData",
      `reading a gradient block: ${bytes.length - at} bytes follow its end at ${at}`,
    );
  }
  return { shape, valueCount, valuesAt, numSamples };
}

/**
 * Decodes a whole block; the values are a copy.
 *
 * @throws {GarwError} InvalidMagic, TruncatedData, TrailingData.
 */
export function decodeGarw(bytes: Uint8Array): GarwBlock {
  const { shape, valueCount, valuesAt, numSamples } = parseGarw(bytes);
  const values = new Float32Array(valueCount);
  new Uint8Array(values.buffer).set(bytes.subarray(valuesAt, valuesAt + 4 * valueCount));
  return { shape, values, numSamples };
}

/**
 * Encodes a block.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { decodeGarw, encodeGarw } from "@tierfold/tierfold";
 *
 * const block = { shape: [2, 2], values: new Float32Array([1, 2, 3, 4]), numSamples: 7 };
 * assertEquals(decodeGarw(encodeGarw(block)), block);
 * ```
 *
 * @throws {RangeError} when a dim, the number of values or numSamples does not fit a u32.
 */
export function encodeGarw(block: GarwBlock): Uint8Array<ArrayBuffer> {
  const { shape, values, numSamples } = block;
  for (const [what, value] of [["num_samples", numSamples], ...shape.map((d) => ["a dim", d])]) {
    if (!Number.isInteger(value) || Number(value) < 0 || Number(value) > GARW_MAX_SAMPLES) {
      throw new RangeError(
        `encoding a gradient block: ${what} is ${value}, not an integer of 32 bits`,
      );
    }
  }
  const bytes = new Uint8Array(FIXED_BYTES + 4 * shape.length + values.byteLength);
  const view = new DataView(bytes.buffer);
  bytes.set(MAGIC);
  view.setUint32(4, shape.length, true);
  shape.forEach((dim, i) => view.setUint32(8 + 4 * i, dim, true));
  const countAt = 8 + 4 * shape.length;
  view.setUint32(countAt, values.length, true);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), countAt + 4);
  view.setUint32(countAt + 4 + values.byteLength, numSamples, true);
  return bytes;
}

/**
 * Encodes values with the shape that names are computed over: [number of values].
 *
 * @throws {RangeError} when numSamples does not fit a u32.
 */
export function canonicalGarw(values: Float32Array, numSamples: number): Uint8Array<ArrayBuffer> {
  return encodeGarw({ shape: [values.length], values, numSamples });
}

/**
 * The name of a block.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { garwCid } from "@tierfold/tierfold";
 *
 * const values = new Float32Array([1, 2, 3]);
 * // The name follows from what is in the block alone.
 * assertEquals(garwCid({ values, numSamples: 7 }), garwCid({ values: values.slice(), numSamples: 7 }));
 * ```
 *
 * @returns "grad-" and 16 lower-case hex digits.
 * @throws {RangeError} when numSamples does not fit a u32.
 */
export function garwCid(block: Pick<GarwBlock, "values" | "numSamples">): string {
  return cidOfCanonical(canonicalGarw(block.values, block.numSamples));
}

/** The name of a block that is already encoded with shape [number of values]. */
export function cidOfCanonical(bytes: Uint8Array): string {
  return `grad-${new Fnv1a64().update(bytes).hex()}`;
}
