import { assert, assertEquals, assertRejects } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { UsageError } from "../../cli/spec.ts";
import { readCheckpointFile } from "../../controller/state/checkpoint_file.ts";
import { CheckpointError } from "../../controller/state/checkpoint_error.ts";
import { loadCheckpoint } from "../../controller/state/load.ts";
import type { OuterOptions } from "../../controller/state/outer.ts";
import { SessionState } from "../../controller/state/session_state.ts";
import { Arena } from "../../kernels/arena.ts";
import { restoreConsensus } from "../../rank/restore.ts";
import { average, Session } from "../cluster/session.ts";
import { failure, pause, soon } from "../cluster/waiting.ts";
import { TempDir } from "./dir.ts";
import { HOSTS, Model, same, startSession, stateOptions, train, withState } from "./training.ts";

const OUTERS: readonly OuterOptions[] = [
  { name: "average" },
  { name: "nesterov", rate: 0.7, momentum: 0.9 },
  { name: "fedadam", rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-3 },
];

/** The tensors of the newest checkpoint by name, the optimizer's state included. */
async function newest(dir: TempDir): Promise<Map<string, string>> {
  const path = `${dir.path}/checkpoints/${dir.names("checkpoints").at(-1)}`;
  const places: Uint8Array[] = [];
  const { header } = await readCheckpointFile(path, ({ header }) => {
    places.push(...header.tensors.map(({ nbytes }) => new Uint8Array(nbytes)));
    return places;
  });
  return new Map(header.tensors.map(({ name }, i) => [name, places[i]!.toBase64()]));
}

for (const outer of OUTERS) {
  Deno.test(`state: ${outer.name}, resumed twice, gives the bits of an uninterrupted run`, async () => {
    using whole = new TempDir();
    using parts = new TempDir();
    let wanted: Model;
    {
      await using session = await startSession({ outer, directory: whole.path });
      const { from, model } = await train(session, 7);
      assertEquals(from, 0);
      wanted = model;
      await session.finish();
    }
    for (const [from, to] of [[0, 3], [3, 4], [4, 7]]) {
      await using session = await startSession({ outer, directory: parts.path, resume: true });
      const run = await train(session, to!);
      assertEquals(run.from, from);
      await session.finish();
      if (to === 7) assert(same(run.model.values, wanted.values), "the models differ");
    }
    const [a, b] = [await newest(whole), await newest(parts)];
    assertEquals([...a.keys()].slice(0, 4), [
      "tensor.0",
      "tensor.1",
      "tensor.2",
      "group.1.tensor.0",
    ]);
    assertEquals(
      a.size,
      4 + 3 * (outer.name === "average" ? 0 : outer.name === "nesterov" ? 1 : 2),
    );
    for (const [name, values] of a) assert(values === b.get(name), `${name} differs`);
    assertEquals(b.size, a.size);
    // And what ranks would read from the file is what they have.
    const { step, tensors } = await loadCheckpoint(`${parts.path}/checkpoints`);
    assertEquals(step, 7);
    assert(same(tensors.map(({ data }) => data), wanted.values));
  });
}

Deno.test("state: a session that is cut off goes on from the last checkpoint, with the same bits", async () => {
  using whole = new TempDir();
  using parts = new TempDir();
  const outer = OUTERS[1]!;
  let wanted: Model;
  {
    await using session = await startSession({ outer, directory: whole.path });
    wanted = (await train(session, 6)).model;
    await session.finish();
  }
  {
    // The last file goes, as if the process had been killed before its end.
    await using session = await startSession({ outer, directory: parts.path });
    await train(session, 5);
    await session.finish();
    const last = dir(parts).at(-1)!;
    assertEquals(last, "checkpoint-000000000005.safetensors");
    Deno.removeSync(`${parts.path}/checkpoints/${last}`);
  }
  await using session = await startSession({ outer, directory: parts.path, resume: true });
  const run = await train(session, 6);
  // A checkpoint that is due while one is being written is taken later.
  assert(run.from >= 2 && run.from <= 4, `went on from ${run.from}`);
  assert(same(run.model.values, wanted.values));
  await session.finish();
});

function dir(temp: TempDir): string[] {
  return temp.names("checkpoints");
}

Deno.test("state: checkpoints come every so many steps and at the end, and the newest stay", async () => {
  using temp = new TempDir();
  {
    const options = { directory: temp.path, checkpointEvery: 3, checkpointKeep: 2 };
    await using session = await startSession(options);
    const clients = await session.ranks();
    for (let step = 1; step <= 10; step++) {
      await average(clients, clients.map(() => Float32Array.of(step)), [1, 1, 1]);
      if (step % 3 === 0) await session.log.has(`the checkpoint of step ${step} is on the disk`);
    }
    await session.finish();
    await session.log.has("the checkpoint of step 10 is on the disk");
    const told = session.log.lines.filter((line) => line.includes("is on the disk"));
    assertEquals(told.length, 4);
  }
  const name = (step: string) => `checkpoint-0000000000${step}.safetensors`;
  assertEquals(dir(temp), [name("09"), name("10")]);
});

Deno.test("state: the ledger holds sessions, rounds, hosts, ranks, masses, ends and checkpoints", async () => {
  using temp = new TempDir();
  let sha256 = "";
  {
    await using session = await Session.start({
      hosts: HOSTS,
      controller: withState({ directory: temp.path, checkpointEvery: 100 }),
    });
    const clients = await session.ranks();
    const values = () => clients.map(({ rank }) => Float32Array.of(rank, 2 * rank));
    await average(clients, values(), [1, 2, 3]);
    await Promise.all(clients.map((client) => client.gatherCounts(1)));
    // Rank 1 sends what is refused: its host has no rank left.
    const poisoned = values();
    poisoned[1]![0] = NaN;
    await Promise.all([
      failure("the poisoned round", clients[1]!.allReduce([poisoned[1]!], { mass: 1 })),
      average([clients[0]!, clients[2]!], [poisoned[0]!, poisoned[2]!], [1, 1]),
    ]);
    await session.finish();
    const digest = await crypto.subtle.digest("SHA-256", Float32Array.of(1, 2).buffer);
    sha256 = new Uint8Array(digest).toHex();
  }
  {
    await using session = await startSession({ directory: temp.path, resume: true });
    await session.ranks();
    await session.finish();
  }
  using db = new DatabaseSync(`${temp.path}/ledger.sqlite`, { readOnly: true });
  const all = (sql: string) => db.prepare(sql).all().map((row) => ({ ...row }));
  assertEquals(
    all(
      "SELECT id, world_size, outer, resumed_step, ending, ended_at >= started_at AS ok FROM sessions",
    ),
    [
      {
        id: 1,
        world_size: 3,
        outer: '{"name":"average"}',
        resumed_step: null,
        ending: "every rank has left",
        ok: 1,
      },
      {
        id: 2,
        world_size: 3,
        outer: '{"name":"average"}',
        resumed_step: 2,
        ending: "every rank has left",
        ok: 1,
      },
    ],
  );
  assertEquals(
    all("SELECT session, round, kind, mass, step, sha256, duration_ms > 0 AS ok FROM rounds"),
    [
      { session: 1, round: 0, kind: "model", mass: 6, step: 1, sha256: null, ok: 1 },
      { session: 1, round: 1, kind: "control", mass: 0, step: null, sha256: null, ok: 1 },
      { session: 1, round: 2, kind: "model", mass: 2, step: 2, sha256, ok: 1 },
    ].map((row, i) =>
      i === 0 ? { ...row, sha256: all("SELECT sha256 FROM rounds")[0]!.sha256 } : row
    ),
  );
  assertEquals(all("SELECT round, host_key, host, ranks, mass FROM contributions"), [
    { round: 0, host_key: 0, host: "host-0", ranks: "0,2", mass: 4 },
    { round: 0, host_key: 1, host: "host-1", ranks: "1", mass: 2 },
    { round: 1, host_key: 0, host: "host-0", ranks: "0,2", mass: 0 },
    { round: 1, host_key: 1, host: "host-1", ranks: "1", mass: 0 },
    { round: 2, host_key: 0, host: "host-0", ranks: "0,2", mass: 2 },
  ]);
  const exits = all("SELECT round, host, ranks, lost, reason FROM exits WHERE session = 1");
  assertEquals(exits.map(({ ranks }) => ranks).sort(), ["0", "1", "2"]);
  assertEquals(exits.find(({ ranks }) => ranks === "1")?.round, 2);
  const [stored] = all("SELECT session, step, round, path, bytes, sha256 FROM checkpoints");
  assertEquals([stored?.session, stored?.step, stored?.round], [1, 2, 2]);
  assertEquals(stored?.bytes, Deno.statSync(stored?.path as string).size);
});

Deno.test("state: a directory that holds a training, or is in use, is refused by name", async () => {
  using temp = new TempDir();
  const open = (options: Parameters<typeof stateOptions>[0]) =>
    SessionState.open(stateOptions({ directory: temp.path, ...options }), new Arena());
  {
    await using session = await startSession({ directory: temp.path, outer: OUTERS[1]! });
    await assertRejects(() => open({}), UsageError, "another controller uses this directory");
    await train(session, 2);
    await session.finish();
  }
  await assertRejects(() => open({}), UsageError, "up to step 2; go on from the last good one");
  await assertRejects(
    () => open({ resume: true, outer: OUTERS[2]! }),
    UsageError,
    "has the state of nesterov",
  );
  await assertRejects(() => open({ resume: true }), UsageError, "--outer-optimizer average");
  const path = `${temp.path}/checkpoints/${dir(temp)[0]}`;
  Deno.truncateSync(path, 5_000);
  await assertRejects(
    () => open({ resume: true, outer: OUTERS[1]! }),
    CheckpointError,
    "none of its 1",
  );
  Deno.removeSync(path);
  Deno.writeTextFileSync(
    `${temp.path}/ledger.sqlite`,
    "no database, but long enough to be read as one",
  );
  await assertRejects(() => open({}), Error, "opening the ledger");
});

Deno.test("state: from averages to another optimizer, which starts at the resumed consensus", async () => {
  using temp = new TempDir();
  {
    await using session = await startSession({ directory: temp.path });
    await train(session, 1);
    await session.finish();
  }
  const outer: OuterOptions = { name: "nesterov", rate: 0.5, momentum: 0 };
  await using session = await startSession({ directory: temp.path, resume: true, outer });
  const clients = await session.ranks();
  const models = clients.map(() => new Model());
  const steps = await Promise.all(
    clients.map((client, i) => restoreConsensus(client, models[i]!.parameters)),
  );
  assertEquals(steps, [1, 1, 1]);
  const before = models[0]!.values;
  const rounds = clients.map((client, i) => {
    for (const { data } of models[i]!.parameters) data.fill(1);
    return client.allReduce(models[i]!.parameters, { mass: 1 });
  });
  await soon("the round", Promise.all(rounds));
  models[0]!.parameters.forEach(({ data }, t) =>
    data.forEach((value, i) => {
      const x = before[t]![i]!;
      assertEquals(value, Math.fround(x - 0.5 * (x - 1)));
    })
  );
});

Deno.test("state: without a consensus to restore, the tensors stay and the step is 0", async () => {
  await using session = await Session.start({ hosts: [[0]] });
  const client = await session.rank(0);
  const values = Float32Array.of(1, 2);
  assertEquals(await restoreConsensus(client, [values]), 0);
  assertEquals(values, Float32Array.of(1, 2));
});

Deno.test("state: the resumed consensus is handed out until the first Model round, to its shapes", async () => {
  using temp = new TempDir();
  {
    await using session = await startSession({ directory: temp.path });
    await train(session, 3);
    await session.finish();
  }
  await using session = await startSession({ directory: temp.path, resume: true });
  const clients = await session.ranks();
  const ask = (length: number) =>
    Promise.all(clients.map((client) => restoreConsensus(client, [new Float32Array(length)])));
  assertEquals(await ask(8), [0, 0, 0]);
  assertEquals(await ask(7), [3, 3, 3]);
  const counts = await Promise.all(clients.map((client) => client.gatherCounts(client.rank + 1)));
  for (const list of counts) assertEquals([...list], [1, 2, 3]);
  await average(clients, clients.map(() => new Float32Array(7)), [1, 1, 1]);
  assertEquals(await ask(7), [0, 0, 0]);
});

Deno.test("state: a Model round without mass changes no consensus and counts no step", async () => {
  using temp = new TempDir();
  {
    const options = { directory: temp.path, checkpointEvery: 1, outer: OUTERS[1]! };
    await using session = await startSession(options);
    const clients = await session.ranks();
    const values = clients.map(() => Float32Array.of(4, 5));
    await average(clients, values, [1, 1, 1]);
    assertEquals(await average(clients, values.map(() => Float32Array.of(9, 9)), [0, 0, 0]), [
      0,
      0,
      0,
    ]);
    await session.finish();
  }
  const { step, tensors } = await loadCheckpoint(`${temp.path}/checkpoints`);
  assertEquals([step, tensors[0]?.data], [1, Float32Array.of(4, 5)]);
});

Deno.test("state: bf16 results are kept as they are; with an outer optimizer they travel in f32", async () => {
  for (const outer of OUTERS.slice(0, 2)) {
    using temp = new TempDir();
    let wanted: Model;
    {
      await using session = await startSession({ directory: temp.path, outer });
      wanted = (await train(session, 3, { wire: "bf16" })).model;
      await session.finish();
    }
    const { tensors } = await loadCheckpoint(`${temp.path}/checkpoints`);
    assert(same(tensors.map(({ data }) => data), wanted.values));
    await using session = await startSession({ directory: temp.path, outer, resume: true });
    const { from, model } = await train(session, 3, { wire: "bf16" });
    assertEquals(from, 3);
    assert(same(model.values, wanted.values));
    const narrow = wanted.parameters[2]!.data.every((value) =>
      (new Uint32Array(Float32Array.of(value).buffer)[0]! & 0xffff) === 0
    );
    assertEquals(narrow, outer.name === "average");
  }
});

Deno.test("state: names come from the manifest where it fits", async () => {
  using temp = new TempDir();
  const manifest = [["w", "scale", "long"], ["mean"]];
  {
    await using session = await startSession({ directory: temp.path, manifest, outer: OUTERS[1]! });
    await train(session, 1);
    await session.finish();
  }
  assertEquals([...(await newest(temp)).keys()], [
    ...manifest.flat(),
    ...["w", "scale", "long"].map((name) => `tierfold.momentum:${name}`),
  ]);
});

Deno.test("state: rounds go on when a checkpoint cannot be written; the end says so", async () => {
  using temp = new TempDir();
  await using session = await startSession({ directory: temp.path, checkpointEvery: 1 });
  const clients = await session.ranks();
  const round = () => average(clients, clients.map(() => Float32Array.of(1)), [1, 1, 1]);
  await round();
  await session.log.has("the checkpoint of step 1 is on the disk");
  Deno.removeSync(`${temp.path}/checkpoints`, { recursive: true });
  await round();
  await session.log.has("writing the checkpoint", "rounds go on");
  assertEquals(await round(), [3, 3, 3]);
  await pause(50);
  await Promise.all(clients.map((client) => client.close()));
  await failure("the end", session.controller.outcome, "checkpoint");
  using db = new DatabaseSync(`${temp.path}/ledger.sqlite`, { readOnly: true });
  assertEquals(db.prepare("SELECT count(*) AS n FROM rounds").get()?.n, 3);
});
