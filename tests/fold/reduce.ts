/**
 * Fold and reduce over whole frames in memory, as the golden vectors have them.
 *
 * @module
 */
import type { FoldKernel } from "../../kernels/kernel.ts";
import { decodeFrame, type FrameHeader, sealFrame } from "../../wire/round_frame.ts";
import { WireError } from "../../wire/errors.ts";
import { FrameFold, type HeldFrame } from "../../fold/frame_fold.ts";
import { checkFoldable, schemaDifference, schemaError } from "../../fold/schema.ts";

async function sum(
  frames: readonly Uint8Array[],
  salt: Uint8Array,
  ceiling: number,
  kernel: FoldKernel,
  divide: boolean,
): Promise<Uint8Array> {
  const held = frames.map((bytes, i): HeldFrame => {
    const header = decodeFrame(bytes, salt, ceiling);
    checkFoldable(header, `frame ${i}`);
    return { bytes, header };
  });
  const first = held[0];
  if (first === undefined) {
    throw new WireError("empty", "frame", "folding: no frame came, expected at least one");
  }
  held.forEach(({ header }, i) => {
    const difference = schemaDifference(header, first.header);
    if (difference !== undefined) throw schemaError(`frame ${i}`, difference, "frame 0");
  });
  const out = new Uint8Array(first.header.length);
  const fold = new FrameFold(kernel, out);
  const header: FrameHeader = await fold.finish(held, divide);
  sealFrame(out, header, salt);
  return out;
}

/**
 * The element-wise f32 sum of whole frames, in the order given, starting from +0.0; never divides.
 *
 * @returns A fresh, sealed frame.
 * @throws {WireError} when there is no frame, one is not authentic, or two disagree, naming the frame
 *   and the tensor.
 */
export function foldFrames(
  frames: readonly Uint8Array[],
  salt: Uint8Array,
  ceiling: number,
  kernel: FoldKernel,
): Promise<Uint8Array> {
  return sum(frames, salt, ceiling, kernel, false);
}

/**
 * What the root makes of a round: the fold, divided once by the total mass for kind Model.
 *
 * @param frames One per host, undefined where a host's work did not come.
 * @returns A fresh, sealed frame.
 * @throws {WireError} as {@link foldFrames} does.
 */
export function reduceFrames(
  frames: readonly (Uint8Array | undefined)[],
  salt: Uint8Array,
  ceiling: number,
  kernel: FoldKernel,
): Promise<Uint8Array> {
  return sum(frames.filter((frame) => frame !== undefined), salt, ceiling, kernel, true);
}
