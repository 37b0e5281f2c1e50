/**
 * The RoundFrame: a rank's contribution, a host's fold, or a round's result.
 *
 *     0   u32 magic 0xF10D17F1
 *     4   u32 number of tensors, at most 65,536
 *     8   u8  kind                 0 Model, 1 Control
 *     9   f64 weight               finite, >= 0
 *     17  per tensor:
 *           u8  dtype              0 f32; 1 bf16 (protocol 3)
 *           u8  ndim
 *           u32 x ndim             shape; ndim 0 is a scalar
 *           u64 nbytes
 *           nbytes of data
 *     end tag64(salt, everything above)
 *
 * All little-endian. Format: flodl 0.6.0. dtype, and shape against nbytes, are checked where frames are
 * folded (fold/schema.ts), not here.
 *
 * @module
 */
import { invariant, WireError } from "./errors.ts";
import { MAX_DIMS, MAX_FRAME_BYTES, MAX_TENSORS, TAG_BYTES } from "./limits.ts";
import { tag64, tagsEqual } from "./mac.ts";

/** First word of a frame. */
export const FRAME_MAGIC = 0xf10d17f1;
/** dtype of 32-bit floats. */
export const DTYPE_F32 = 0;
/** dtype of bfloat16, protocol 3 only. */
export const DTYPE_BF16 = 1;

/** Bytes in front of the first tensor. */
export const FRAME_HEADER_BYTES = 17;
const WEIGHT_AT = 9;
/** Bytes of a tensor's header without its dims. */
const TENSOR_FIXED_BYTES = 10;

/** What a round is: Model rounds are divided by their total weight, Control rounds are sums. */
export type RoundKind = "model" | "control";

const KINDS: readonly RoundKind[] = ["model", "control"];

/** One tensor's header, and where its data lies. */
export interface TensorHeader {
  dtype: number;
  /** The dims; empty for a scalar. */
  shape: readonly number[];
  /** Bytes of data that the frame carries for it. */
  nbytes: number;
  /** Offset of the data from the start of the frame. */
  at: number;
}

/** Everything of a frame but its numbers. */
export interface FrameHeader {
  kind: RoundKind;
  /** The mass behind the numbers. */
  weight: number;
  tensors: readonly TensorHeader[];
  /** Bytes of the whole frame, its tag included. */
  length: number;
}

/** The number of elements of a shape: 1 for a scalar, 0 where a dim is 0. */
export function elementCount(shape: readonly number[]): number {
  // Many large dims reach infinity, and infinity times a 0 among them would be NaN.
  if (shape.includes(0)) return 0;
  let count = 1;
  for (const dim of shape) count *= dim;
  return count;
}

/**
 * Lays out a frame for the given tensors.
 *
 * @param tensors dtype and shape of each; `nbytes` where it is not the full data (elided zeros).
 * @returns A header of kind Model and weight 0.
 * @throws {RangeError} when the format cannot say it: too many tensors, dims or bytes, or a dim that is
 *   not a u32.
 */
export function layoutFrame(
  tensors: readonly { dtype: number; shape: readonly number[]; nbytes?: number }[],
): FrameHeader {
  if (tensors.length > MAX_TENSORS) {
    throw new RangeError(
      `laying out a frame: ${tensors.length} tensors, a frame holds at most ${MAX_TENSORS}`,
    );
  }
  let at = FRAME_HEADER_BYTES;
  const headers = tensors.map(({ dtype, shape, nbytes }, i): TensorHeader => {
    expectShape(shape, i);
    const bytes = nbytes ?? elementCount(shape) * (dtype === DTYPE_BF16 ? 2 : 4);
    at += TENSOR_FIXED_BYTES + 4 * shape.length;
    const header = { dtype, shape, nbytes: bytes, at };
    at += bytes;
    return header;
  });
  const length = at + TAG_BYTES;
  if (length > MAX_FRAME_BYTES) {
    throw new RangeError(
      `laying out a frame: ${length} bytes, a frame has at most ${MAX_FRAME_BYTES}; use several rounds`,
    );
  }
  return { kind: "model", weight: 0, tensors: headers, length };
}

function expectShape(shape: readonly number[], tensor: number): void {
  if (shape.length > MAX_DIMS) {
    throw new RangeError(
      `laying out a frame: tensor ${tensor} has ${shape.length} dims, a tensor has at most ${MAX_DIMS}`,
    );
  }
  const odd = shape.find((dim) => !(Number.isInteger(dim) && dim >= 0 && dim <= 0xffff_ffff));
  if (odd !== undefined) {
    throw new RangeError(
      `laying out a frame: tensor ${tensor} has the dim ${odd}, a dim is an integer from 0 to 2^32 - 1`,
    );
  }
}

/** Writes all headers of a frame; the data and the tag are the caller's. */
export function encodeFrameHeaders(frame: Uint8Array, header: FrameHeader): void {
  const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
  view.setUint32(0, FRAME_MAGIC, true);
  view.setUint32(4, header.tensors.length, true);
  view.setUint8(8, KINDS.indexOf(header.kind));
  view.setFloat64(WEIGHT_AT, header.weight, true);
  for (const tensor of header.tensors) {
    let at = tensor.at - TENSOR_FIXED_BYTES - 4 * tensor.shape.length;
    view.setUint8(at, tensor.dtype);
    view.setUint8(at + 1, tensor.shape.length);
    at += 2;
    for (const dim of tensor.shape) {
      view.setUint32(at, dim, true);
      at += 4;
    }
    view.setBigUint64(at, BigInt(tensor.nbytes), true);
  }
}

/** Computes and writes the tag of a finished frame. */
export function sealFrame(frame: Uint8Array, header: FrameHeader, salt: Uint8Array): void {
  const end = header.length - TAG_BYTES;
  frame.set(tag64(salt, frame.subarray(0, end)), end);
}

/**
 * Encodes a whole frame into fresh bytes, for frames that are small or rare.
 *
 * @param tensors Shape and f32 values of each; as many values as the shape has elements.
 */
export function encodeFrame(
  kind: RoundKind,
  weight: number,
  tensors: readonly { shape: readonly number[]; values: Float32Array }[],
  salt: Uint8Array,
): Uint8Array {
  const layout = layoutFrame(tensors.map(({ shape }) => ({ dtype: DTYPE_F32, shape })));
  const header: FrameHeader = { ...layout, kind, weight };
  const frame = new Uint8Array(header.length);
  encodeFrameHeaders(frame, header);
  tensors.forEach(({ values }, i) => {
    const { at, nbytes, shape } = header.tensors[i]!;
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    invariant(
      bytes.length === nbytes,
      `tensor ${i} of shape [${shape.join(", ")}] is given ${values.length} values`,
    );
    frame.set(bytes, at);
  });
  sealFrame(frame, header, salt);
  return frame;
}

/**
 * The error for a frame whose tag does not match.
 *
 * @param more What else is known of it.
 */
export function frameMacError(more = ""): WireError {
  return new WireError(
    "mac",
    "connection",
    "verifying a round frame: its MAC does not match; the salts of the two processes differ, or " +
      `bytes were changed on the way${more}`,
  );
}

/**
 * Follows the headers of a frame while its bytes arrive in one contiguous buffer. Nothing that the
 * headers announce is believed beyond the ceiling, and nothing is allocated for it.
 *
 *     read position <= received <= capacity of the buffer
 */
export class FrameParser {
  readonly #ceiling: number;
  #kind: RoundKind = "model";
  #weight = 0;
  #expected = -1;
  #tensors: TensorHeader[] = [];
  #dataBytes = 0;
  /** Where the next header starts; until all headers are read, at most one tensor past `received`. */
  #at = 0;

  /** @param ceiling The most bytes that all tensors' data may have together. */
  constructor(ceiling: number) {
    this.#ceiling = ceiling;
  }

  /** Starts over for another frame. */
  reset(): void {
    this.#expected = -1;
    this.#tensors = [];
    this.#dataBytes = 0;
    this.#at = 0;
  }

  /**
   * Reads on as far as the bytes go.
   *
   * @param frame The buffer in which the frame starts at 0.
   * @param received How many bytes of it have arrived.
   * @returns The header once every tensor's header has arrived, undefined before.
   * @throws {WireError} as soon as a byte is impossible.
   */
  advance(frame: Uint8Array, received: number): FrameHeader | undefined {
    const view = new DataView(frame.buffer, frame.byteOffset, received);
    if (this.#expected < 0) {
      if (received < FRAME_HEADER_BYTES) {
        // A stranger is told apart by its first word already.
        if (received >= 4) this.#checkMagic(view);
        return undefined;
      }
      this.#readStart(view);
    }
    while (this.#tensors.length < this.#expected) {
      if (received < this.#at + 2) return undefined;
      const ndim = view.getUint8(this.#at + 1);
      const dataAt = this.#at + TENSOR_FIXED_BYTES + 4 * ndim;
      if (received < dataAt) return undefined;
      this.#readTensor(view, ndim, dataAt);
    }
    return {
      kind: this.#kind,
      weight: this.#weight,
      tensors: this.#tensors,
      length: this.#at + TAG_BYTES,
    };
  }

  #checkMagic(view: DataView): void {
    const magic = view.getUint32(0, true);
    if (magic !== FRAME_MAGIC) {
      throw refuse(
        "magic",
        `magic 0x${magic.toString(16)}, expected 0x${FRAME_MAGIC.toString(16)}`,
      );
    }
  }

  #readStart(view: DataView): void {
    this.#checkMagic(view);
    const count = view.getUint32(4, true);
    if (count > MAX_TENSORS) {
      throw refuse("tensor-count", `tensor count ${count} is above ${MAX_TENSORS}`);
    }
    const kind = KINDS[view.getUint8(8)];
    if (kind === undefined) {
      throw refuse("kind", `unknown round kind ${view.getUint8(8)}, expected 0 or 1`);
    }
    const weight = view.getFloat64(WEIGHT_AT, true);
    if (!(Number.isFinite(weight) && weight >= 0)) {
      throw refuse("weight", `weight ${weight} is not finite and non-negative`);
    }
    this.#kind = kind;
    this.#weight = weight;
    this.#expected = count;
    this.#at = FRAME_HEADER_BYTES;
  }

  #readTensor(view: DataView, ndim: number, dataAt: number): void {
    const shape: number[] = [];
    for (let i = 0; i < ndim; i++) shape.push(view.getUint32(this.#at + 2 + 4 * i, true));
    const nbytes = Number(view.getBigUint64(dataAt - 8, true));
    this.#dataBytes += nbytes;
    if (this.#dataBytes > this.#ceiling) {
      throw refuse(
        "ceiling",
        `tensor ${this.#tensors.length} brings the data to ${this.#dataBytes} bytes, above the ` +
          `frame ceiling of ${this.#ceiling}`,
      );
    }
    this.#tensors.push({ dtype: view.getUint8(this.#at), shape, nbytes, at: dataAt });
    this.#at = dataAt + nbytes;
  }
}

function refuse(code: WireError["code"], text: string): WireError {
  return new WireError(code, "connection", `reading a round frame: ${text}`);
}

/**
 * Checks that a frame whose headers were read is exactly as long as the blob that carried it, and,
 * once that is known, authentic.
 *
 * @param header The header, or undefined when the blob ended inside the headers.
 * @param length Bytes of the blob.
 * @param authentic Whether the blob ends in the tag of what is in front of it; left out while it is
 *   still arriving.
 * @throws {WireError} when the frame is cut short, bytes follow it, or its tag does not match.
 */
export function expectWhole(
  header: FrameHeader | undefined,
  length: number,
  authentic?: boolean,
): asserts header is FrameHeader {
  if (header === undefined) {
    // Headers that ask for more than came are only believed of bytes that nobody changed.
    if (authentic === false && length >= FRAME_HEADER_BYTES + TAG_BYTES) {
      throw frameMacError(`; its ${length} bytes end inside its headers, so it may be truncated`);
    }
    throw refuse("truncated", `it is truncated: its ${length} bytes end inside its headers`);
  }
  if (header.length !== length) {
    const truncated = length < header.length;
    throw refuse(
      truncated ? "truncated" : "trailing",
      `${truncated ? "it is truncated: " : ""}${length} bytes came, its headers need ` +
        `${header.length}`,
    );
  }
  if (authentic === false) throw frameMacError();
}

/**
 * Decodes one whole frame from contiguous bytes, its tag included.
 *
 * @returns The header; data lies in `frame` at each tensor's `at`.
 * @throws {WireError} when anything but exactly one authentic frame is there.
 */
export function decodeFrame(frame: Uint8Array, salt: Uint8Array, ceiling: number): FrameHeader {
  const header = new FrameParser(ceiling).advance(frame, frame.length);
  const end = Math.max(frame.length - TAG_BYTES, 0);
  const authentic = tagsEqual(tag64(salt, frame.subarray(0, end)), frame.subarray(end));
  expectWhole(header, frame.length, authentic);
  return header;
}
