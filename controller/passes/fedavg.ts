/**
 * FedAvg over blocks that are at hand, with the weights applied before the sum.
 *
 * The cluster averages contributions the other way round, as every fold does: value x samples is
 * summed, and the sum divided once (controller/passes/aggregate.ts). Both are the same mean; they round
 * at different places, so their last bits can differ.
 *
 * @module
 */
import { type GarwBlock, GarwError } from "../../wire/garw.ts";

function sameShape(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((dim, i) => dim === b[i]);
}

/**
 * The sample-weighted mean of blocks (McMahan et al. 2017, algorithm 1), in f32 and in order: each block
 * adds value x f32(f32(num_samples) / f32(total)); when every block has 0 samples, each adds
 * f32(value / f32(number of blocks)).
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { fedavg } from "@tierfold/tierfold";
 *
 * const block = (value: number, numSamples: number) => ({
 *   shape: [1],
 *   values: new Float32Array([value]),
 *   numSamples,
 * });
 * assertEquals([...fedavg([block(1, 1), block(5, 3)])], [4]);
 * assertEquals([...fedavg([block(1, 0), block(5, 0)])], [3]);
 * ```
 *
 * @param blocks One layer of each peer, all of one shape.
 * @returns The mean, f32, of the blocks' shape.
 * @throws {GarwError} EmptyInput without blocks; ShapeMismatch, naming both shapes.
 */
export function fedavg(blocks: readonly GarwBlock[]): Float32Array {
  const first = blocks[0];
  if (first === undefined) {
    throw new GarwError("EmptyInput", "averaging gradient blocks: there is none");
  }
  let total = 0;
  for (const [i, block] of blocks.entries()) {
    if (!sameShape(block.shape, first.shape) || block.values.length !== first.values.length) {
      throw new GarwError(
        "ShapeMismatch",
        `averaging gradient blocks: block ${i} has shape [${block.shape}] with ` +
          `${block.values.length} values, the first one [${first.shape}] with ${first.values.length}`,
      );
    }
    total += block.numSamples;
  }
  const mean = new Float32Array(first.values.length);
  const divisor = Math.fround(total === 0 ? blocks.length : total);
  for (const { values, numSamples } of blocks) {
    const weight = Math.fround(Math.fround(numSamples) / divisor);
    for (let i = 0; i < mean.length; i++) {
      const value = values[i]!;
      mean[i] = mean[i]! + Math.fround(total === 0 ? value / divisor : value * weight);
    }
  }
  return mean;
}
