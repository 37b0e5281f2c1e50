// Frames for the tests of this folder.
import type { HeldFrame } from "../../fold/frame_fold.ts";
import { encodeFrame, type FrameHeader, type RoundKind } from "../../wire/round_frame.ts";
import { decodeFrame } from "../../wire/round_frame.ts";
import { DEFAULT_FRAME_CEILING } from "../../wire/limits.ts";
import { SALT } from "../vectors.ts";

/** A frame of the given shapes, its values made by `value`. */
export function held(
  shapes: readonly (readonly number[])[],
  value: (tensor: number, element: number) => number = () => 1,
  { kind = "model", weight = 1 }: { kind?: RoundKind; weight?: number } = {},
): HeldFrame {
  const tensors = shapes.map((shape, tensor) => ({
    shape,
    values: Float32Array.from(
      { length: shape.reduce((count, dim) => count * dim, 1) },
      (_, element) => value(tensor, element),
    ),
  }));
  const bytes = encodeFrame(kind, weight, tensors, SALT);
  return { bytes, header: decodeFrame(bytes, SALT, DEFAULT_FRAME_CEILING) };
}

/** The values of each tensor of a frame. */
export function valuesOf(bytes: Uint8Array, header: FrameHeader): Float32Array[] {
  return header.tensors.map(({ at, nbytes }) =>
    new Float32Array(Uint8Array.from(bytes.subarray(at, at + nbytes)).buffer)
  );
}

/** The f32 sum of these lists, one after another from +0.0. */
export function sequentialSum(lists: readonly Float32Array[]): Float32Array {
  const sum = new Float32Array(lists[0]!.length);
  for (const list of lists) list.forEach((value, i) => sum[i] = sum[i]! + value);
  return sum;
}
