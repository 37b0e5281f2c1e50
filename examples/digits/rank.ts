/**
 * One rank of the digits example: trains on its own shard and averages with the others every few steps.
 *
 *     TIERFOLD_SALT=... deno run --allow-net=127.0.0.1 --allow-env=TIERFOLD_SALT examples/digits/rank.ts \
 *       RELAY RANK WORLD_SIZE ROUNDS SEED [f32|bf16]
 *
 * @module
 */

import { gammaMass, RankClient } from "../../mod.ts";
import { histogram, loadDigits, pick, split } from "./data.ts";
import { DigitsModel } from "./model.ts";
import { report, wholeNumber } from "./report.ts";
import { LEARNING_RATE, LocalTrainer, stepsPerRound } from "./train.ts";

/** How long a round may take before this rank gives up on it, in milliseconds. */
const ROUND_TIMEOUT_MS = 60_000;

const [relay = "", ...numbers] = Deno.args;
const rank = wholeNumber(numbers[0], "RANK", 0);
const worldSize = wholeNumber(numbers[1], "WORLD_SIZE", 1);
const rounds = wholeNumber(numbers[2], "ROUNDS", 1);
const seed = wholeNumber(numbers[3], "SEED", 0);
const wire = numbers[4] === "bf16" ? "bf16" : "f32";

const { train, heldOut, shards } = split(await loadDigits(), worldSize, seed);
const shard = shards[rank]!;
const client = await RankClient.connect({
  relay,
  rank,
  worldSize,
  salt: Deno.env.get("TIERFOLD_SALT") ?? "",
  roundTimeoutMs: ROUND_TIMEOUT_MS,
  wire,
});

// Every rank starts with other weights; the broadcast is what makes them equal.
const model = await DigitsModel.create(seed + rank, LEARNING_RATE);
await client.broadcast(model.parameters, 0);
model.push();

const steps = stepsPerRound(await client.gatherCounts(shard.length))[rank]!;
const labels = histogram(pick(train, shard).labels);
report({ kind: "start", rank, digits: shard.length, labels, steps });

const trainer = new LocalTrainer(model, train, shard, seed, rank);
for (let round = 1; round <= rounds; round++) {
  const started = performance.now();
  const loss = await trainer.run(steps);
  model.pull();
  const { ms, bytesUp } = await client.allReduce(model.parameters, { mass: gammaMass(steps, 1) });
  model.push();
  const roundMs = performance.now() - started;
  report({ kind: "round", rank, round, steps, loss, roundMs, averageMs: ms, bytesUp });
}
await client.close();

report({
  kind: "end",
  rank,
  sha256: model.fingerprint(),
  ...(rank === 0 ? { accuracy: model.accuracy(heldOut) } : {}),
});
