/**
 * The coordinate-wise trimmed mean, and with the largest trim the coordinate-wise median.
 *
 * @module
 */
import type { F32Bytes } from "../../kernels/kernel.ts";
import { Breather } from "../../transport/breather.ts";
import { invariant } from "../../wire/errors.ts";
import { GarwError } from "../../wire/garw.ts";

/** Values sorted between two turns of the loop, about 2 ms of work. */
const SLICE_VALUES = 32 * 1024;

/** One layer of one peer. */
export interface Unweighted {
  /** Little-endian f32 values. */
  readonly values: F32Bytes;
  /** What they are multiplied by, in float64, rounded once to f32. */
  readonly scale: number;
}

/**
 * Of each coordinate, the mean of what is left without the `trim` smallest and the `trim` largest values:
 * summed in float64 from the smallest up, divided by their number, rounded once to f32. The order of the
 * contributions does not matter.
 *
 * @param contributions The layer of each peer, all equally long, finite.
 * @param trim How many are left out at either end, less than half of them.
 * @returns The mean, f32.
 * @throws {GarwError} EmptyInput, ShapeMismatch.
 */
export async function trimmedMean(
  contributions: readonly Unweighted[],
  trim: number,
): Promise<Float32Array<ArrayBuffer>> {
  const first = contributions[0];
  if (first === undefined) {
    throw new GarwError("EmptyInput", "averaging contributions: there is none");
  }
  const count = contributions.length;
  invariant(2 * trim < count, "something is left of what is trimmed");
  const { length } = first.values;
  const views = contributions.map(({ values }, i) => {
    if (values.length !== length) {
      throw new GarwError(
        "ShapeMismatch",
        `averaging contributions: the first one has ${length / 4} values, contribution ${i} has ` +
          `${values.length / 4}`,
      );
    }
    return new DataView(values.buffer, values.byteOffset, values.byteLength);
  });
  const scales = contributions.map(({ scale }) => scale);
  const mean = new Float32Array(length / 4);
  // Scaled values are rounded to f32 as they are put here.
  const column = new Float32Array(count);
  const step = Math.max(1, Math.floor(SLICE_VALUES / count));
  const breather = new Breather();
  for (let from = 0; from < mean.length; from += step) {
    const to = Math.min(from + step, mean.length);
    for (let i = from; i < to; i++) {
      for (let k = 0; k < count; k++) column[k] = views[k]!.getFloat32(4 * i, true) * scales[k]!;
      column.sort();
      let sum = 0;
      for (let k = trim; k < count - trim; k++) sum += column[k]!;
      mean[i] = sum / (count - 2 * trim);
    }
    await breather.breathe();
  }
  return mean;
}
