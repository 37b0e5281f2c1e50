/**
 * Between a checkpoint's tensors and the consensus with its outer optimizer.
 *
 * @module
 */
import { FrameSlot } from "../../frames/slot.ts";
import type { Arena } from "../../kernels/arena.ts";
import { plainConversions } from "../../kernels/convert.ts";
import type { Manifest } from "../../wire/manifest.ts";
import {
  DTYPE_BF16,
  DTYPE_F32,
  elementCount,
  encodeFrameHeaders,
  type FrameHeader,
  layoutFrame,
} from "../../wire/round_frame.ts";
import type { SafetensorsEntry } from "../../wire/safetensors.ts";
import type { CheckpointContents, CheckpointTensor } from "./checkpoint_file.ts";
import { type Consensus, valueCount } from "./consensus.ts";
import { OuterOptimizer, type OuterOptions, outerVectors } from "./outer.ts";

/** In front of the names of an optimizer's state. */
const STATE_PREFIX = "tierfold.";

/**
 * The names of all tensors, group by group: those of the manifest when it fits every group, else
 * `tensor.0`, and from the second group on `group.1.tensor.0`.
 */
export function tensorNames(
  counts: readonly number[],
  manifest: Manifest | undefined,
): readonly (readonly string[])[] {
  if (manifest !== undefined && fits(counts, manifest)) return manifest.slice(0, counts.length);
  return counts.map((count, group) =>
    Array.from(
      { length: count },
      (_, i) => group === 0 ? `tensor.${i}` : `group.${group}.tensor.${i}`,
    )
  );
}

/** Whether a manifest names as many tensors as each group has. */
export function fits(counts: readonly number[], manifest: Manifest): boolean {
  return counts.every((count, group) => manifest[group]?.length === count);
}

/** What a checkpoint of this consensus holds; the bytes are those of the frames themselves. */
export function snapshotTensors(
  consensus: Consensus,
  outer: OuterOptimizer | undefined,
  manifest: Manifest | undefined,
): CheckpointTensor[] {
  const { groups } = consensus;
  const names = tensorNames(groups.map(({ header }) => header.tensors.length), manifest);
  const tensors = groups.flatMap(({ header, bytes }, group) =>
    header.tensors.map(({ dtype, shape, at, nbytes }, i): CheckpointTensor => ({
      name: names[group]![i]!,
      dtype: dtype === DTYPE_BF16 ? "BF16" : "F32",
      shape,
      bytes: bytes.subarray(at, at + nbytes),
    }))
  );
  const first = groups[0];
  if (first === undefined || outer === undefined) return tensors;
  for (const [vector, values] of outer.state) {
    let from = 0;
    first.header.tensors.forEach(({ shape }, i) => {
      const to = from + elementCount(shape);
      tensors.push({
        name: `${STATE_PREFIX}${vector}:${names[0]![i]}`,
        dtype: "F32",
        shape,
        bytes: bytesOf(values.subarray(from, to)),
      });
      from = to;
    });
  }
  return tensors;
}

/**
 * Fills a consensus from a checkpoint that is about to be read. Its values become f32, in which it is
 * handed to ranks and optimizer.
 *
 * @param consensus Has no groups yet.
 * @param options The optimizer that goes on; its state is that of the checkpoint, where that has some.
 * @returns Where the tensors' bytes go, the optimizer, and what remains to be done once they are there.
 */
export function restoreSnapshot(
  { header, info }: CheckpointContents,
  consensus: Consensus,
  arena: Arena,
  options: OuterOptions,
): { places: Uint8Array<ArrayBufferLike>[]; outer: OuterOptimizer; finish: () => void } {
  const places: Uint8Array<ArrayBufferLike>[] = [];
  const widen: (() => void)[] = [];
  const frames: { slot: FrameSlot; layout: FrameHeader }[] = [];
  let start = 0;
  for (const count of info.groups) {
    const entries = header.tensors.slice(start, start + count);
    start += count;
    const layout = layoutFrame(entries.map(({ shape }) => ({ dtype: DTYPE_F32, shape })));
    const slot = new FrameSlot(arena);
    slot.reserve(layout.length);
    encodeFrameHeaders(slot.frame, layout);
    entries.forEach((entry, i) => {
      const { at, nbytes } = layout.tensors[i]!;
      const values = slot.frame.subarray(at, at + nbytes);
      if (entry.dtype === "F32") places.push(values);
      else {
        const narrow = new Uint8Array(entry.nbytes);
        places.push(narrow);
        widen.push(() => plainConversions.bf16ToF32(values, narrow));
      }
    });
    frames.push({ slot, layout });
  }
  const outer = new OuterOptimizer(options, valueCount(frames[0]!.layout));
  const state = header.tensors.slice(start);
  if (info.outer.name === options.name) places.push(...statePlaces(outer, state));
  const finish = () => {
    widen.forEach((action) => action());
    for (const { slot, layout } of frames) consensus.restore(slot, layout);
  };
  return { places, outer, finish };
}

function statePlaces(
  outer: OuterOptimizer,
  entries: readonly SafetensorsEntry[],
): Uint8Array<ArrayBufferLike>[] {
  const perVector = entries.length / Math.max(outer.state.size, 1);
  return outerVectors(outer.options).flatMap((vector, v) => {
    let from = 0;
    return entries.slice(v * perVector, (v + 1) * perVector).map(({ shape }) => {
      const to = from + elementCount(shape);
      const bytes = bytesOf(outer.state.get(vector)!.subarray(from, to));
      from = to;
      return bytes;
    });
  });
}

function bytesOf(values: Float32Array): Uint8Array<ArrayBufferLike> {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
