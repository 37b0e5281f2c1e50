/**
 * FedAvg as the cluster's own fold: a contribution becomes a frame of value x num_samples whose mass is
 * num_samples; frames are summed as any host's are, and divided once.
 *
 * Against {@link fedavg}, which weighs before it sums, this rounds at other places: fround(value x n)
 * summed and multiplied by f32(1 / W), instead of value x f32(n / W) summed. For k blocks each way is
 * within (k + 2) x 2^-24 of the sum of |value| x n / W, so the two can differ in the last bit or, where
 * the sum cancels, in as many bits as cancelled.
 *
 * @module
 */
import { FrameFold, type HeldFrame } from "../../fold/frame_fold.ts";
import type { F32Bytes, FoldKernel } from "../../kernels/kernel.ts";
import { Breather } from "../../transport/breather.ts";
import { DTYPE_F32, layoutFrame } from "../../wire/round_frame.ts";
import { GarwError } from "../../wire/garw.ts";

/** Bytes of scaled values that are held at once, for all contributions together. */
const SCRATCH_BYTES = 16 * 1024 ** 2;

/** One layer of one peer, ready to be averaged. */
export interface Weighted {
  /** Little-endian f32 values. */
  readonly values: F32Bytes;
  /** Samples behind them. */
  readonly numSamples: number;
  /** What the values are multiplied by first, in float64, rounded once to f32; 1 unless given. */
  readonly scale?: number;
}

/** value x scale x mass, rounded to f32 after each, little-endian; twice 1 copies the bits. */
function scaleInto(target: Uint8Array, source: F32Bytes, scale: number, mass: number): void {
  target.set(source);
  if (scale === 1 && mass === 1) return;
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const weight = Math.fround(mass);
  for (let at = 0; at < target.length; at += 4) {
    view.setFloat32(at, Math.fround(view.getFloat32(at, true) * scale) * weight, true);
  }
}

/**
 * The sample-weighted mean of one layer, by the fold. When nobody has samples, everybody counts as one.
 *
 * @param kernel Does the sums.
 * @param contributions The layer of each peer, in the order of the fold; all equally long.
 * @returns The mean, f32.
 * @throws {GarwError} EmptyInput, ShapeMismatch.
 */
export async function foldedMean(
  kernel: FoldKernel,
  contributions: readonly Weighted[],
): Promise<Float32Array<ArrayBuffer>> {
  const first = contributions[0];
  if (first === undefined) {
    throw new GarwError("EmptyInput", "averaging contributions: there is none");
  }
  const { length } = first.values;
  const odd = contributions.findIndex(({ values }) => values.length !== length);
  if (odd >= 0) {
    throw new GarwError(
      "ShapeMismatch",
      `averaging contributions: the first one has ${length / 4} values, contribution ${odd} has ` +
        `${contributions[odd]!.values.length / 4}`,
    );
  }
  const idle = contributions.every(({ numSamples }) => numSamples === 0);
  const mean = new Float32Array(length / 4);
  const meanBytes = new Uint8Array(mean.buffer);
  const step = Math.max(4, Math.floor(SCRATCH_BYTES / contributions.length / 4) * 4);
  const breather = new Breather();
  for (let from = 0; from < length; from += step) {
    const to = Math.min(from + step, length);
    const layout = layoutFrame([{ dtype: DTYPE_F32, shape: [(to - from) / 4] }]);
    const { at } = layout.tensors[0]!;
    const frames: HeldFrame[] = [];
    for (const { values, numSamples, scale = 1 } of contributions) {
      const mass = idle ? 1 : numSamples;
      const bytes = new Uint8Array(layout.length);
      scaleInto(bytes.subarray(at, at + to - from), values.subarray(from, to), scale, mass);
      frames.push({ bytes, header: { ...layout, weight: mass } });
      await breather.breathe();
    }
    const out = new Uint8Array(layout.length);
    const fold = new FrameFold(kernel, out);
    await fold.add(frames);
    await fold.finish([], true);
    meanBytes.set(out.subarray(at, at + to - from), from);
  }
  return mean;
}
