/**
 * Leads the rounds of the federated example: starts each pass, waits for it, measures what came out, and
 * asks the replica the same questions.
 *
 *     TIERFOLD_SALT=... deno run --allow-net --allow-env=TIERFOLD_SALT \
 *       examples/federated/lead.ts URL CLIENTS ROUNDS SEED WAIT REPLICA
 *
 * @module
 */

import { IntakeError } from "../../mod.ts";
import { type Digits, loadDigits, split } from "../digits/data.ts";
import { DigitsModel } from "../digits/model.ts";
import { connect, fetchInto, keyOf, LEARNING_RATE, passOf, say, settingOf } from "./plan.ts";

/** How long the replica may be behind, in milliseconds. */
const REPLICA_MS = 10_000;

const setting = settingOf(Deno.args);
const { url, clients, rounds, seed, waitMs, rest: [replica = ""] } = setting;
const client = connect(url, "lead");
const { heldOut } = split(await loadDigits(), clients, seed);
const model = await DigitsModel.create(seed, LEARNING_RATE);

/** Waits until the replica has the given version. */
async function replicaHas(version: number): Promise<void> {
  for (const end = Date.now() + REPLICA_MS;;) {
    const status = await (await fetch(new URL("/status", replica))).json();
    if (status.version >= version) return;
    if (Date.now() > end) {
      throw new Error(`the replica is at version ${status.version}, not ${version}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** The share of digits that the replica names rightly. */
async function askReplica(digits: Digits): Promise<number> {
  const response = await fetch(new URL("/predict", replica), {
    method: "POST",
    headers: { "content-type": "application/octet-stream" },
    body: Uint8Array.from(new Uint8Array(digits.pixels.buffer)),
  });
  if (!response.ok) throw new Error(`asking the replica: ${await response.text()}`);
  const { guesses } = await response.json() as { guesses: { digit: number }[] };
  const right = guesses.filter(({ digit }, i) => digit === digits.labels[i]).length;
  return right / digits.labels.length;
}

let version = 0;
for (let round = 1; round <= rounds; round++) {
  const started = performance.now();
  await client.start(passOf(round, setting, model.parameters));
  try {
    const pass = await client.wait(keyOf(round), waitMs + 30_000);
    await fetchInto(model.parameters, client, keyOf(round));
    model.push();
    version++;
    await replicaHas(version);
    say({
      kind: "round",
      round,
      received: pass.received,
      samples: pass.num_samples ?? 0,
      accuracy: model.accuracy(heldOut),
      replica: await askReplica(heldOut),
      ms: performance.now() - started,
    });
  } catch (error) {
    if (!(error instanceof IntakeError && error.code === "PassFailed")) throw error;
    say({ kind: "failed", round, reason: error.message });
  }
}
