/**
 * The digits example without a cluster, to compare with: `alone` makes, for every rank, the steps that
 * it made in the cluster, on the same shard in the same order, but never averages; `all` makes as many
 * steps as all ranks together, on all training digits.
 *
 *     deno run examples/digits/baseline.ts alone|all WORLD_SIZE ROUNDS SEED
 *
 * @module
 */

import { loadDigits, split } from "./data.ts";
import { DigitsModel } from "./model.ts";
import { report, wholeNumber } from "./report.ts";
import { LEARNING_RATE, LocalTrainer, stepsPerRound } from "./train.ts";

/** Steps between two signs of life. */
const STRIDE = 200;

const [mode, ...numbers] = Deno.args;
if (mode !== "alone" && mode !== "all") throw new RangeError(`expected alone or all, got ${mode}`);
const worldSize = wholeNumber(numbers[0], "WORLD_SIZE", 1);
const rounds = wholeNumber(numbers[1], "ROUNDS", 1);
const seed = wholeNumber(numbers[2], "SEED", 0);

const { train, heldOut, shards } = split(await loadDigits(), worldSize, seed);
const perRound = stepsPerRound(shards.map((shard) => shard.length));
const total = rounds * perRound.reduce((sum, steps) => sum + steps, 0);
let done = 0;

/** Trains fresh weights, those that the cluster starts with, and measures them. */
async function run(shard: Uint32Array, steps: number, order: number): Promise<number> {
  const model = await DigitsModel.create(seed, LEARNING_RATE);
  const trainer = new LocalTrainer(model, train, shard, seed, order);
  for (let left = steps; left > 0;) {
    const stride = Math.min(left, STRIDE);
    await trainer.run(stride);
    left -= stride;
    done += stride;
    report({ kind: "progress", steps: done, of: total });
  }
  return model.accuracy(heldOut);
}

if (mode === "all") {
  const digits = train.labels.length;
  const everything = Uint32Array.from({ length: digits }, (_, index) => index);
  const accuracy = await run(everything, total, worldSize);
  report({ kind: "baseline", digits, steps: total, accuracy });
} else {
  for (const [rank, shard] of shards.entries()) {
    const steps = rounds * perRound[rank]!;
    const accuracy = await run(shard, steps, rank);
    report({ kind: "baseline", rank, digits: shard.length, steps, accuracy });
  }
}
