// The controller as users start it, with the narrowest permissions: killed, resumed, out of disk.
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { loadCheckpoint } from "../../controller/state/load.ts";
import { RankClient } from "../../rank/client.ts";
import { restoreConsensus } from "../../rank/restore.ts";
import { Cluster } from "../cluster/cluster.ts";
import { pause, soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { TempDir } from "./dir.ts";
import { Model, same } from "./training.ts";

const STARTS_MS = 60_000;

function start(directory: string, ...args: string[]): Promise<Cluster> {
  return Cluster.start([[0, 1]], {
    args: ["--state", directory, "--outer-optimizer", "nesterov", ...args],
    permissions: [
      ...["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"],
      ...[`--allow-read=${directory}`, `--allow-write=${directory}`],
    ],
  });
}

function connect(cluster: Cluster): Promise<RankClient[]> {
  const relay = cluster.relays[0]!.address;
  return Promise.all(
    [0, 1].map((rank) => RankClient.connect({ relay, rank, worldSize: 2, salt: SALT })),
  );
}

async function step(clients: RankClient[], models: Model[], at: number): Promise<void> {
  await soon(
    `step ${at}`,
    Promise.all(clients.map((client, i) => {
      models[i]!.train(client.rank, at);
      return client.allReduce(models[i]!.parameters, { mass: 1 });
    })),
    STARTS_MS,
  );
}

Deno.test("state: a controller killed in mid-session loses no checkpoint that it spoke of, and resumes", async () => {
  using temp = new TempDir();
  using other = new TempDir();
  const models = [new Model(), new Model()];
  const wanted = [new Model(), new Model()];
  {
    await using cluster = await start(other.path);
    const clients = await connect(cluster);
    for (let at = 0; at < 6; at++) await step(clients, wanted, at);
    await Promise.all(clients.map((client) => client.close()));
    await cluster.controller.ends(0);
  }
  let spoken = 0;
  {
    await using cluster = await start(temp.path, "--checkpoint-every", "1");
    const clients = await connect(cluster);
    for (let at = 0; at < 4; at++) await step(clients, models, at);
    await cluster.controller.logged("the checkpoint of step");
    const log = cluster.controller.child.stderr;
    cluster.controller.signal("SIGKILL");
    spoken = Math.max(
      ...[...log.matchAll(/checkpoint of step (\d+)/g)].map((found) => Number(found[1])),
    );
    await Promise.all(clients.map((client) => client.close()));
  }
  const { step: kept } = await loadCheckpoint(`${temp.path}/checkpoints`);
  assert(kept >= spoken && spoken > 0, `it spoke of step ${spoken}, ${kept} is there`);
  await using cluster = await start(temp.path, "--resume");
  await cluster.controller.logged(`going on from step ${kept}`);
  const clients = await connect(cluster);
  const fresh = [new Model(), new Model()];
  const froms = await soon(
    "the consensus",
    Promise.all(clients.map((client, i) => restoreConsensus(client, fresh[i]!.parameters))),
    STARTS_MS,
  );
  assertEquals(froms, [kept, kept]);
  for (let at = kept; at < 6; at++) await step(clients, fresh, at);
  for (const model of fresh) {
    assert(same(model.values.slice(0, 3), wanted[0]!.values.slice(0, 3)), "the bits differ");
  }
  await Promise.all(clients.map((client) => client.close()));
  await cluster.controller.ends(0);
  using db = new DatabaseSync(`${temp.path}/ledger.sqlite`, { readOnly: true });
  const endings = db.prepare("SELECT ending FROM sessions ORDER BY id").all().map((row) =>
    row.ending
  );
  assertEquals(endings, [null, "every rank has left"]);
});

Deno.test("state: ended by a signal, a controller leaves the last consensus", async () => {
  using temp = new TempDir();
  await using cluster = await start(temp.path, "--checkpoint-every", "1000");
  const clients = await connect(cluster);
  const models = [new Model(), new Model()];
  for (let at = 0; at < 3; at++) await step(clients, models, at);
  cluster.controller.signal("SIGTERM");
  await cluster.controller.ends(143);
  const { step: last, tensors } = await loadCheckpoint(`${temp.path}/checkpoints`);
  assertEquals(last, 3);
  assert(same(tensors.map(({ data }) => data), models[0]!.values.slice(0, 3)));
  using db = new DatabaseSync(`${temp.path}/ledger.sqlite`, { readOnly: true });
  assertEquals(db.prepare("SELECT ending FROM sessions").get()?.ending, "ended by SIGTERM");
  await Promise.all(clients.map((client) => client.close()));
});

Deno.test("state: wrong use is exit code 2, and says what to do", async () => {
  using temp = new TempDir();
  Deno.mkdirSync(`${temp.path}/checkpoints`);
  Deno.writeTextFileSync(`${temp.path}/checkpoints/checkpoint-000000000007.safetensors`, "x");
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...[
        "run",
        "--quiet",
        "--allow-all",
        new URL("../../controller.ts", import.meta.url).pathname,
      ],
      ...["--listen", "127.0.0.1:0", "--world-size", "2", "--state", temp.path],
    ],
    env: { TIERFOLD_SALT: SALT.toHex() },
  }).output();
  const text = new TextDecoder().decode(stderr);
  assertEquals(code, 2, text);
  assertStringIncludes(text, "up to step 7");
  assertStringIncludes(text, "--resume");
});

/** Writes until the disk is full. */
function fill(path: string): void {
  using file = Deno.openSync(path, { write: true, create: true });
  try {
    while (file.writeSync(new Uint8Array(4_096)) > 0);
  } catch (error) {
    if (!String(error).includes("space")) throw error;
  }
}

/** Whether this process may make file systems. */
function mayMount(): boolean {
  if (Deno.build.os !== "linux" || Deno.uid() !== 0) return false;
  const path = Deno.makeTempDirSync();
  const run = (...command: string[]) =>
    new Deno.Command(command[0]!, { args: command.slice(1), stderr: "null" }).outputSync().success;
  const good = run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", path) && run("umount", path);
  Deno.removeSync(path);
  return good;
}

const mounts = mayMount();

Deno.test({
  name: `state: with a full disk rounds go on, and no checkpoint is lost${
    mounts ? "" : " (skipped: no file system can be mounted here)"
  }`,
  ignore: !mounts,
  fn: async () => {
    using temp = new TempDir();
    const disk = `${temp.path}/disk`;
    Deno.mkdirSync(disk);
    const run = (...command: string[]) =>
      new Deno.Command(command[0]!, { args: command.slice(1) }).outputSync().success;
    assert(run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk));
    try {
      await using cluster = await start(disk, "--checkpoint-every", "1", "--checkpoint-keep", "1");
      const clients = await connect(cluster);
      const models = [new Model(), new Model()];
      await step(clients, models, 0);
      await cluster.controller.logged("the checkpoint of step 1 is on the disk");
      fill(`${disk}/ballast`);
      for (let at = 1; at < 4; at++) await step(clients, models, at);
      await cluster.controller.logged("writing the checkpoint", "space");
      assertEquals((await loadCheckpoint(`${disk}/checkpoints`)).step, 1);
      Deno.removeSync(`${disk}/ballast`);
      for (let at = 4; at < 6; at++) {
        await step(clients, models, at);
        await pause(100);
      }
      await Promise.all(clients.map((client) => client.close()));
      await cluster.controller.ends(0);
      const { step: last, tensors } = await loadCheckpoint(`${disk}/checkpoints`);
      assertEquals(last, 6);
      assert(same(tensors.map(({ data }) => data), models[0]!.values.slice(0, 3)));
    } finally {
      assert(run("umount", disk), "the test's file system is still in use");
    }
  },
});
