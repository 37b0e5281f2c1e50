/**
 * Some honest clients of the federated example, in one process: each has a shard of its own, trains on
 * it from the last consensus, and delivers its weights. Of some, the last words name what is odd:
 * `slow` ones dawdle, so that now and then they come too late; one `vanishes`, in the middle of an upload.
 *
 *     TIERFOLD_SALT=... deno run --allow-net --allow-env=TIERFOLD_SALT \
 *       examples/federated/clients.ts URL CLIENTS ROUNDS SEED WAIT CLIENT[:slow|:vanishes]...
 *
 * @module
 */

import { encodeGarw, type FederatedClient, IntakeError, signedHeaders } from "../../mod.ts";
import { loadDigits, split } from "../digits/data.ts";
import { DigitsModel } from "../digits/model.ts";
import { LocalTrainer } from "../digits/train.ts";
import {
  blocksOf,
  connect,
  fetchInto,
  keyOf,
  LEARNING_RATE,
  MAX_STEPS,
  peerName,
  say,
  settingOf,
} from "./plan.ts";

/** Digits in a batch of {@link LocalTrainer}. */
const BATCH = 16;

/** How much longer than a round waits slow clients dawdle in every second one, in milliseconds. */
const DAWDLE_MS = 1_000;

/** The round in which one client vanishes. */
const LAST_ROUND = 3;

const { url, clients, rounds, seed, waitMs, rest } = settingOf(Deno.args);
const { train, shards } = split(await loadDigits(), clients, seed);
// One network for all of them: they take turns, and each one's weights are its own.
const model = await DigitsModel.create(seed, LEARNING_RATE);
const first = model.parameters.map(({ data }) => data.slice());
let turn: Promise<unknown> = Promise.resolve();

/** Runs one client's training at a time. */
function inTurn<T>(action: () => Promise<T>): Promise<T> {
  const run = turn.then(action);
  turn = run.catch(() => {});
  return run;
}

/** Waits until a round has started; true unless it is over already. */
async function opened(client: FederatedClient, round: number): Promise<boolean> {
  for (;;) {
    try {
      const { state } = await client.read(keyOf(round));
      return state.kind !== "Complete" && state.kind !== "Failed";
    } catch (error) {
      if (!(error instanceof IntakeError && error.code === "PassNotFound")) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Starts to upload a block, and is gone. */
async function vanish(peer: string, round: number): Promise<never> {
  const { layer, block } = blocksOf(model.parameters, 1)[0]!;
  const body = encodeGarw(block);
  const path = `/v1/passes/${keyOf(round)}/peers/${peer}/layers/${layer}`;
  const salt = Uint8Array.fromHex(Deno.env.get("TIERFOLD_SALT") ?? "");
  const half = ReadableStream.from(async function* () {
    yield body.slice(0, body.length / 2);
    say({ kind: "vanished", peer, round });
    await new Promise((resolve) => setTimeout(resolve, 200));
    Deno.exit(0);
  }());
  await fetch(new URL(path, url), {
    method: "PUT",
    headers: signedHeaders({ method: "PUT", path, body }, salt),
    body: half,
  });
  throw new Error("half a block was taken for a whole one");
}

async function run(number: number, oddity: string | undefined): Promise<void> {
  const client = connect(url, peerName(number));
  const shard = shards[number]!;
  const trainer = new LocalTrainer(model, train, shard, seed, number);
  const steps = Math.min(MAX_STEPS, Math.max(1, Math.floor(shard.length / BATCH)));
  let consensus: readonly Float32Array[] = first;
  let delivered = 0;
  let late = 0;
  for (let round = 1; round <= rounds; round++) {
    const open = await opened(client, round);
    const blocks = await inTurn(async () => {
      const state = round > 1 ? (await client.read(keyOf(round - 1))).state.kind : undefined;
      if (state === "Complete") {
        await fetchInto(model.parameters, client, keyOf(round - 1));
        consensus = model.parameters.map(({ data }) => data.slice());
      }
      if (!open) return [];
      model.parameters.forEach(({ data }, i) => data.set(consensus[i]!));
      model.push();
      await trainer.run(steps);
      model.pull();
      if (oddity === "vanishes" && round === Math.min(LAST_ROUND, rounds)) {
        await vanish(client.peer, round);
      }
      return blocksOf(model.parameters, shard.length).map(({ layer, block }) => ({
        layer,
        block: { ...block, values: block.values.slice() },
      }));
    });
    if (oddity === "slow" && round % 2 === 0) {
      await new Promise((resolve) => setTimeout(resolve, waitMs + DAWDLE_MS));
    }
    try {
      if (blocks.length === 0) throw new IntakeError(409, "PassAlreadyTerminal", "it is over");
      for (const { layer, block } of blocks) await client.contribute(keyOf(round), layer, block);
      delivered++;
    } catch (error) {
      if (!(error instanceof IntakeError) || !error.code.startsWith("Pass")) throw error;
      late++;
    }
  }
  say({ kind: "client", peer: client.peer, digits: shard.length, delivered, late });
}

say({ kind: "ready" });
await Promise.all(rest.map((word) => {
  const [number = "", oddity] = word.split(":");
  return run(Number(number), oddity);
}));
