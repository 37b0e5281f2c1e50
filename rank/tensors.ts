/**
 * The caller's tensors, and how they lie in a frame.
 *
 * @module
 */
import { elementCount, type FrameHeader, layoutFrame } from "../wire/round_frame.ts";

/** A tensor of the caller: its values stay the caller's, and results are written into them. */
export interface NamedTensor {
  /** For error messages. */
  name?: string;
  /** The dims; one dim of all values when left out. An empty list is a scalar. */
  shape?: readonly number[];
  /** f32 values, row-major, as many as the shape has elements. */
  data: Float32Array;
}

/** A tensor as the caller may give it: with a name and shape, or as a flat vector. */
export type TensorLike = Float32Array | NamedTensor;

/** A tensor with all that was left out filled in. */
export interface Tensor {
  name: string;
  shape: readonly number[];
  data: Float32Array;
  /** The bytes of `data`. */
  bytes: Uint8Array<ArrayBufferLike>;
}

/**
 * Fills in what the caller left out.
 *
 * @throws {TypeError} when they are not a list of tensors.
 * @throws {RangeError} when a shape does not fit its values.
 */
export function normalizeTensors(tensors: readonly TensorLike[]): Tensor[] {
  // Programs run without a type check too.
  if (!Array.isArray(tensors)) {
    throw new TypeError(`sending tensors: expected a list of them, got ${kindOf(tensors)}`);
  }
  return tensors.map((tensor: TensorLike, i) => {
    const { data, name, shape } = tensor instanceof Float32Array
      ? { data: tensor, name: undefined, shape: undefined }
      : tensor;
    const label = name ?? `tensor ${i}`;
    if (!(data instanceof Float32Array)) {
      const given = data ?? tensor;
      throw new TypeError(
        `sending ${label}: expected a Float32Array, or an object whose data is one, got ${
          kindOf(given)
        }`,
      );
    }
    const dims = shape ?? [data.length];
    if (elementCount(dims) !== data.length) {
      throw new RangeError(
        `sending ${label}: shape [${dims.join(", ")}] has ${
          elementCount(dims)
        } elements, its data ` +
          `${data.length}`,
      );
    }
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    return { name: label, shape: dims, data, bytes };
  });
}

function kindOf(value: unknown): string {
  return value === null || typeof value !== "object"
    ? typeof value
    : value.constructor?.name ?? "object";
}

/**
 * The layout of these tensors' frame, taken over from `last` when nothing changed since.
 *
 * @param dtype In which the frame carries them.
 */
export function layoutFor(
  tensors: readonly Tensor[],
  dtype: number,
  last: FrameHeader | undefined,
): FrameHeader {
  const same = last !== undefined && last.tensors.length === tensors.length &&
    tensors.every(({ shape }, i) => {
      const before = last.tensors[i]!;
      return before.dtype === dtype && shape.length === before.shape.length &&
        shape.every((dim, d) => dim === before.shape[d]);
    });
  return same ? last : layoutFrame(tensors.map(({ shape }) => ({ dtype, shape: [...shape] })));
}
