// The controller killed and started again, as processes: relays come back to it, and ranks notice nothing
// but the time.
import { assert, assertEquals } from "@std/assert";
import { RankClient } from "../../rank/client.ts";
import { TempDir } from "../state/dir.ts";
import { Model, same } from "../state/training.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { Cluster, type Ranks } from "./cluster.ts";
import { soon } from "./waiting.ts";

/** How long a round may take in which the controller has to start. */
const RESTART_MS = 60_000;

async function goodRound(processes: readonly Ranks[], values: readonly number[][], mean: number) {
  for (const [i, process] of processes.entries()) {
    await process.begin(values[i]!.map((value) => [value]));
  }
  await ends(processes, values, mean);
}

async function ends(processes: readonly Ranks[], values: readonly number[][], mean: number) {
  for (const [i, process] of processes.entries()) {
    assertEquals(await process.round(), {
      masses: values[i]!.map(() => 3),
      values: values[i]!.map(() => [mean]),
    });
  }
}

Deno.test("restart: a controller killed between rounds and inside one; its ranks go on", async () => {
  await using cluster = await Cluster.start([[0, 1], [2]], { args: ["--log-level", "trace"] });
  const ranks = await Promise.all([cluster.ranks([0, 1]), cluster.ranks([2])]);
  await goodRound(ranks, [[1, 2], [6]], 3);

  cluster.controller.signal("SIGKILL");
  for (const relay of cluster.relays) await relay.logged("lost the controller");
  await cluster.restartController({ args: ["--log-level", "trace"] });
  await cluster.controller.logged("all 3 ranks have a relay");
  await goodRound(ranks, [[2, 3], [7]], 4);

  // The first host's frame is with the controller when it dies.
  await ranks[0]!.begin([[3], [4]]);
  await cluster.controller.logged("the frame of host host-0 is in round 1");
  cluster.controller.signal("SIGKILL");
  await cluster.restartController();
  await cluster.controller.logged("all 3 ranks have a relay");
  await ranks[1]!.begin([[8]]);
  await ends(ranks, [[3, 4], [8]], 5);
  await goodRound(ranks, [[4, 5], [9]], 6);
  await cluster.finish(ranks);
});

Deno.test("restart: with an outer optimizer the consensus goes on from the checkpoint, bit for bit", async () => {
  using temp = new TempDir();
  using other = new TempDir();
  const plan = (directory: string, ...more: string[]) => ({
    args: [
      "--state",
      directory,
      "--outer-optimizer",
      "nesterov",
      "--checkpoint-every",
      "1",
      ...more,
    ],
    permissions: [
      ...["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"],
      ...[`--allow-read=${directory}`, `--allow-write=${directory}`],
    ],
  });
  const train = async (directory: string, killAt: readonly number[]) => {
    await using cluster = await Cluster.start([[0, 1]], plan(directory));
    const relay = cluster.relays[0]!.address;
    const clients = await Promise.all(
      [0, 1].map((rank) => RankClient.connect({ relay, rank, worldSize: 2, salt: SALT })),
    );
    const models = [new Model(), new Model()];
    for (let at = 0; at < 5; at++) {
      if (killAt.includes(at)) {
        cluster.controller.signal("SIGKILL");
        await cluster.restartController(plan(directory, "--resume"));
        await cluster.controller.logged(`going on from step ${at}`);
      }
      const steps = clients.map((client, i) => {
        models[i]!.train(client.rank, at);
        return client.allReduce(models[i]!.parameters, { mass: 1 });
      });
      await soon(`step ${at}`, Promise.all(steps), RESTART_MS);
      await cluster.controller.logged(`the checkpoint of step ${at + 1} is on the disk`);
    }
    await Promise.all(clients.map((client) => client.close()));
    await cluster.controller.ends(0);
    return models;
  };
  const wanted = await train(other.path, []);
  const models = await train(temp.path, [2, 4]);
  for (const model of models) {
    assert(same(model.values.slice(0, 3), wanted[0]!.values.slice(0, 3)), "the bits differ");
  }
});
