// Tensors whose values tell which step they belong to.
import type { CheckpointTensor } from "../../controller/state/checkpoint_file.ts";
import type { CheckpointInfo } from "../../controller/state/checkpoint_info.ts";

/** Past a piece, past the staging buffer, small, scalar, empty. */
export const SHAPES: readonly (readonly number[])[] = [[300_001], [70_000], [3, 2], [], [0, 5]];

export function valuesOf(step: number, tensor: number): Float32Array<ArrayBuffer> {
  const length = SHAPES[tensor]!.reduce((product, dim) => product * dim, 1);
  return Float32Array.from({ length }, (_, i) => step + tensor / 8 + i / 1024);
}

export function tensorsOf(step: number): CheckpointTensor[] {
  return SHAPES.map((shape, i) => ({
    name: `tensor.${i}`,
    dtype: "F32",
    shape,
    bytes: new Uint8Array(valuesOf(step, i).buffer),
  }));
}

export function infoOf(step: number): CheckpointInfo {
  const outer = { name: "average" } as const;
  return { step, session: 1, round: 2 * step, outer, groups: [SHAPES.length] };
}
