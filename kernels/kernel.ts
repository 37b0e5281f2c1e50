/**
 * The one interface behind which the sums are done.
 *
 * Every kernel gives the bits of sequential f32 additions in the order of the sources, starting from
 * +0.0, so that the choice of kernel never changes a round's result.
 *
 * @module
 */

/**
 * A run of little-endian f32 values seen as bytes: any alignment, a length that is a multiple of 4,
 * over ordinary or shared memory.
 */
export type F32Bytes = Uint8Array<ArrayBufferLike>;

/** The names by which a kernel can be asked for. */
export type KernelName = "plain" | "simd" | "ort-wasm" | "ort-webgpu";

/** One sum in progress. Sources handed to `add` must stay unchanged until `finish` has settled. */
export interface Accumulation {
  /** Adds the sources, one after another, to what was added before. All have the length of `out`. */
  add(sources: readonly F32Bytes[]): void | Promise<void>;

  /**
   * Ends the sum: when this has settled, `out` holds it, each element multiplied by `factor` (rounded
   * to f32, the product in f32) when one is given.
   */
  finish(factor?: number): void | Promise<void>;
}

/** Element-wise f32 sums and products over byte runs. */
export interface FoldKernel {
  /** The kernel's name, as logs and the status show it. */
  readonly name: KernelName;

  /** True when subnormal inputs or results come out as zeros of the same sign. */
  readonly flushesSubnormals: boolean;

  /**
   * Bytes of one tensor from which this kernel wants it whole, as soon as it is there, because it works
   * elsewhere; Infinity for a kernel on the loop, which gets large tensors in pieces.
   */
  readonly wholeFromBytes: number;

  /**
   * Starts a sum from +0.0 into `out`, whose previous content is ignored. `out` may be the very run
   * of the first source; it must not overlap any other one.
   */
  begin(out: F32Bytes): Accumulation;

  /** Multiplies every element of `data` by f32(factor), in place. */
  scale(data: F32Bytes, factor: number): void | Promise<void>;

  /** Releases workers, devices and sessions. Never rejects. */
  close(): Promise<void>;
}
