/**
 * What else is done to values on their way: looking for NaN and infinities, widening and narrowing
 * between f32 and bf16, scaling while copying. The plain loops here are the bits that
 * {@link ./simd.ts} must give.
 *
 * @module
 */
import type { F32Bytes } from "./kernel.ts";
import { invariant } from "../wire/errors.ts";

/** A run of little-endian bf16 values seen as bytes: any alignment, a length that is a multiple of 2. */
export type Bf16Bytes = Uint8Array<ArrayBufferLike>;

/** Element-wise conversions over byte runs, all synchronous. */
export interface Conversions {
  /** The index of the first value in `run` that is NaN or infinite, or -1. */
  firstNonFinite(run: F32Bytes): number;

  /** The index of the first bf16 value in `run` that is NaN or infinite, or -1. */
  firstNonFiniteBf16(run: Bf16Bytes): number;

  /**
   * `dst` = `src` x f32(factor) as bf16, half as long: each product is rounded to f32, then to bf16, to
   * nearest, ties to even, beyond the largest finite bf16 to infinity; a NaN keeps its sign and upper
   * bits and is quiet. The runs do not overlap.
   */
  scaleToBf16(dst: Bf16Bytes, src: F32Bytes, factor: number): void;

  /** Widens `src`, exactly and bit by bit, into `dst`, which has twice its length; no overlap. */
  bf16ToF32(dst: F32Bytes, src: Bf16Bytes): void;

  /** `dst` = `src` x f32(factor), each product rounded to f32. `dst` may be `src` itself. */
  scaleCopy(dst: F32Bytes, src: F32Bytes, factor: number): void;
}

/** Values handled at a time when a run is not aligned. */
const BLOCK = 1024;

interface ViewType<T> {
  new (buffer: ArrayBufferLike, at: number, length: number): T;
  readonly BYTES_PER_ELEMENT: number;
}

/** A view of `run` as values of the given type, or undefined when it is not aligned for them. */
function viewOf<T>(run: Uint8Array<ArrayBufferLike>, type: ViewType<T>): T | undefined {
  const size = type.BYTES_PER_ELEMENT;
  return run.byteOffset % size === 0
    ? new type(run.buffer, run.byteOffset, run.length / size)
    : undefined;
}

/**
 * Calls `step` over aligned views of `dst` and `src` with the same number of values, copying through
 * scratch blocks where either is not aligned.
 */
function forBlocks<D, S>(
  dst: Uint8Array<ArrayBufferLike>,
  Dst: ViewType<D>,
  src: Uint8Array<ArrayBufferLike>,
  Src: ViewType<S>,
  step: (dst: D, src: S) => void,
): void {
  const dstSize = Dst.BYTES_PER_ELEMENT;
  const srcSize = Src.BYTES_PER_ELEMENT;
  const n = src.length / srcSize;
  invariant(
    Number.isInteger(n) && dst.length === n * dstSize,
    `converting ${src.length} bytes of ${srcSize} each into ${dst.length} bytes of ${dstSize} each`,
  );
  const dstView = viewOf(dst, Dst);
  const srcView = viewOf(src, Src);
  if (dstView !== undefined && srcView !== undefined) {
    step(dstView, srcView);
    return;
  }
  const a = new Uint8Array(BLOCK * dstSize);
  const b = new Uint8Array(BLOCK * srcSize);
  for (let at = 0; at < n; at += BLOCK) {
    const end = Math.min(at + BLOCK, n);
    b.set(src.subarray(at * srcSize, end * srcSize));
    step(new Dst(a.buffer, 0, end - at), new Src(b.buffer, 0, end - at));
    dst.set(a.subarray(0, (end - at) * dstSize), at * dstSize);
  }
}

/** The conversions as plain JavaScript loops, the bits every other implementation is compared with. */
export const plainConversions: Conversions = {
  firstNonFinite(run) {
    const view = new DataView(run.buffer, run.byteOffset, run.length);
    for (let i = 0; i < run.length; i += 4) {
      if ((view.getUint32(i, true) & 0x7f800000) === 0x7f800000) return i / 4;
    }
    return -1;
  },

  firstNonFiniteBf16(run) {
    const view = new DataView(run.buffer, run.byteOffset, run.length);
    for (let i = 0; i < run.length; i += 2) {
      if ((view.getUint16(i, true) & 0x7f80) === 0x7f80) return i / 2;
    }
    return -1;
  },

  scaleToBf16(dst, src, factor) {
    const scaled = new Uint8Array(src.length);
    plainConversions.scaleCopy(scaled, src, factor);
    forBlocks(dst, Uint16Array, scaled, Uint32Array, (to, from) => {
      for (let i = 0; i < from.length; i++) {
        const bits = from[i]!;
        to[i] = (bits & 0x7fffffff) > 0x7f800000
          ? (bits >>> 16) | 0x40
          : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
      }
    });
  },

  bf16ToF32(dst, src) {
    forBlocks(dst, Uint32Array, src, Uint16Array, (to, from) => {
      for (let i = 0; i < from.length; i++) to[i] = from[i]! << 16;
    });
  },

  scaleCopy(dst, src, factor) {
    const f = Math.fround(factor);
    forBlocks(dst, Float32Array, src, Float32Array, (to, from) => {
      for (let i = 0; i < from.length; i++) to[i] = from[i]! * f;
    });
  },
};
