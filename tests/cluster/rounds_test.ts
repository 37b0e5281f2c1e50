// What rounds compute, over real sockets.
import { assert, assertEquals } from "@std/assert";
import type { RankClient, RoundResult } from "../../rank/client.ts";
import type { TensorLike } from "../../rank/tensors.ts";
import { average, Session } from "./session.ts";
import { failure, pause, soon } from "./waiting.ts";

const f32 = Math.fround;

/** A round of all clients, each with its own tensors. */
function round(
  clients: readonly RankClient[],
  tensors: (client: RankClient) => readonly TensorLike[],
  mass: (client: RankClient) => number = () => 1,
  kind: "model" | "control" = "model",
): Promise<RoundResult[]> {
  return soon(
    "the round",
    Promise.all(
      clients.map((client) => client.allReduce(tensors(client), { kind, mass: mass(client) })),
    ),
  );
}

Deno.test("a world of one gets back what it gave, bit for bit", async () => {
  await using session = await Session.start({
    hosts: [[0]],
    relays: { 0: { nonfinite: "allow" } },
  });
  const [client] = await session.ranks();
  const values = new Float32Array([1.5, -0, 1e-45, 3.4e38, Infinity, NaN, 0.1, -7]);
  for (const mass of [1, 2, 0.5]) {
    const mine = Float32Array.from(values);
    const result = await client!.allReduce([mine], { mass });
    assertEquals(result.mass, mass);
    // -0 becomes +0: sums start from +0. Twice 3.4e38 passes f32.
    const wanted = [1.5, 0, mass === 0.5 ? 0 : 1e-45, 3.4e38, Infinity, NaN, 0.1, -7].map(f32);
    if (mass === 2) wanted[3] = Infinity;
    assertEquals([...mine], wanted);
  }
  await session.finish();
});

Deno.test("{1, 1, 1} on one host and {5} on another, masses 1, average to 2", async () => {
  await using session = await Session.start({ hosts: [[0, 1, 2], [3]] });
  const clients = await session.ranks();
  const values = [1, 1, 1, 5].map((value) => new Float32Array([value]));
  assertEquals(await average(clients, values, [1, 1, 1, 1]), [4, 4, 4, 4]);
  assertEquals(values.map(([value]) => value), [2, 2, 2, 2]);
  await session.finish();
});

/** Every order of these things. */
function orders<T>(things: readonly T[]): T[][] {
  if (things.length < 2) return [[...things]];
  return things.flatMap((first, i) =>
    orders(things.toSpliced(i, 1)).map((rest) => [first, ...rest])
  );
}

Deno.test("1e8, 1, -1e8 give the same bits in every order of arrival", async (t) => {
  const given = [1e8, 1, -1e8];
  const sum = (list: number[]) => list.reduce((total, value) => f32(total + value), 0);
  const hostings: [hosts: number[][], total: number][] = [
    [[[0, 1, 2]], sum(given)],
    [[[0], [1], [2]], sum(given)],
    [[[0, 1], [2]], sum(given)],
    [[[0], [1, 2]], sum([given[0]!, sum([given[1]!, given[2]!])])],
    [[[0, 2], [1]], sum([sum([given[0]!, given[2]!]), given[1]!])],
  ];
  for (const [hosts, total] of hostings) {
    await t.step(JSON.stringify(hosts), async () => {
      await using session = await Session.start({ hosts });
      const clients = await session.ranks();
      for (const order of orders([0, 1, 2])) {
        const values = given.map((value) => new Float32Array([value]));
        const rounds: Promise<RoundResult>[] = [];
        for (const rank of order) {
          rounds.push(clients[rank]!.allReduce([values[rank]!], { kind: "control", mass: 1 }));
          await pause(8);
        }
        await soon("the round", Promise.all(rounds));
        assertEquals(values.map(([value]) => value), [total, total, total], order.join());
      }
      await session.finish();
    });
  }
  await t.step("hosts that connect late", async () => {
    for (const order of orders([0, 1, 2])) {
      await using session = await Session.start({ hosts: [[0], [1], [2]], later: [0, 1, 2] });
      const values = given.map((value) => new Float32Array([value]));
      const rounds: Promise<RoundResult>[] = [];
      for (const rank of order) {
        await session.startRelay(rank);
        const client = await session.rank(rank);
        rounds.push(client.allReduce([values[rank]!], { kind: "control", mass: 1 }));
        await session.log.has(`host-${rank}`, "round 0: control of");
        await pause(8);
      }
      await soon("the round", Promise.all(rounds));
      const total = sum(given);
      assertEquals(values.map(([value]) => value), [total, total, total], order.join());
      await session.finish();
    }
  });
});

Deno.test("masses weigh; ranks without work count nothing; no work at all changes nothing", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2, 3]] });
  const clients = await session.ranks();
  const weighed = [1, 2, 4, 8].map((value) => new Float32Array([value, -value]));
  assertEquals(await average(clients, weighed, [3, 0.5, 0, 4]), [7.5, 7.5, 7.5, 7.5]);
  const scaled = [3 * 1, 0.5 * 2, 0, 4 * 8].map(f32);
  const wanted = f32(scaled.reduce((sum, value) => f32(sum + value), 0) * f32(1 / 7.5));
  for (const value of weighed) assertEquals([...value], [wanted, -wanted]);

  const broken = [new Float32Array([1]), new Float32Array([NaN]), new Float32Array([Infinity])];
  assertEquals(
    await average(clients, [...broken, new Float32Array([3])], [1, 0, 0, 1]),
    [2, 2, 2, 2],
  );
  assertEquals(broken.map(([value]) => value), [2, 2, 2]);

  const idle = [1, 2, NaN, -0].map((value) => new Float32Array([value]));
  assertEquals(await average(clients, idle, [0, 0, 0, 0]), [0, 0, 0, 0]);
  assertEquals(idle.map(([value]) => value), [1, 2, NaN, -0]);
  await session.finish();
});

Deno.test("Control rounds sum, whatever the masses", async () => {
  await using session = await Session.start({ hosts: [[0], [1, 2]] });
  const clients = await session.ranks();
  const values = clients.map(({ rank }) => new Float32Array([rank + 1, 0.5]));
  const results = await round(
    clients,
    ({ rank }) => [values[rank]!],
    ({ rank }) => rank,
    "control",
  );
  for (const { kind, mass } of results) assertEquals([kind, mass], ["control", 3]);
  for (const value of values) assertEquals([...value], [6, 1.5]);
  await session.finish();
});

Deno.test("broadcast and gatherCounts", async () => {
  const allow = { nonfinite: "allow" } as const;
  await using session = await Session.start({
    hosts: [[0, 1], [2]],
    relays: { 0: allow, 1: allow },
  });
  const clients = await session.ranks();
  for (const root of [0, 1, 2]) {
    const values = clients.map(({ rank }) => [
      { name: "weights", shape: [2, 1], data: new Float32Array([rank + 0.5, -rank]) },
      new Float32Array([NaN, rank]),
    ]);
    await soon(
      "the broadcast",
      Promise.all(clients.map((client) => client.broadcast(values[client.rank]!, root))),
    );
    for (const [first, second] of values as [{ data: Float32Array }, Float32Array][]) {
      assertEquals([...first.data], [root + 0.5, 0 - root]);
      assertEquals([...second], [NaN, root]);
    }
  }
  const counts = await soon(
    "the counts",
    Promise.all(clients.map((client) => client.gatherCounts(10 * client.rank + 7))),
  );
  for (const count of counts) assertEquals([...count], [7, 17, 27]);

  await clients[1]!.close();
  const rest = [clients[0]!, clients[2]!];
  const data = rest.map(({ rank }) => new Float32Array([rank + 1]));
  await Promise.all(
    rest.map((client, i) =>
      failure(
        "the broadcast of a rank that has left",
        client.broadcast([data[i]!], 1),
        `broadcasting from rank 1 to rank ${client.rank}: nothing of it came, so it has left`,
      )
    ),
  );
  assertEquals(data.map(([value]) => value), [1, 3]);
  const left = await Promise.all(
    [clients[0]!, clients[2]!].map((client) => client.gatherCounts(4)),
  );
  for (const count of left) assertEquals([...count], [4, 0, 4]);
  await session.finish();
});

Deno.test("scalars, empty tensors, many tensors, odd sizes, large tensors", async (t) => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  const check = async (shapes: readonly (readonly number[])[]) => {
    const sizes = shapes.map((shape) => shape.reduce((product, dim) => product * dim, 1));
    const tensors = clients.map(({ rank }) =>
      shapes.map((shape, i) => ({
        shape,
        data: Float32Array.from({ length: sizes[i]! }, (_, j) => (rank + 1) * ((i + j) % 1000)),
      }))
    );
    const results = await round(clients, ({ rank }) => tensors[rank]!, ({ rank }) => rank + 1);
    const third = f32(1 / 6);
    for (const list of tensors) {
      list.forEach(({ data }, i) => {
        // 1 x 1 + 2 x 2 + 3 x 3 = 14, exact in f32.
        const at = data.findIndex((value, j) => value !== f32(14 * ((i + j) % 1000) * third));
        assert(at < 0, `tensor ${i} of shape [${shapes[i]}] has ${data[at]} at ${at}`);
      });
    }
    const header = shapes.reduce((sum, shape) => sum + 10 + 4 * shape.length, 17 + 8);
    const bytes = sizes.reduce((sum, size) => sum + 4 * size, header) + 4;
    for (const { bytesUp, bytesDown } of results) {
      assertEquals([bytesUp, bytesDown], [bytes, bytes]);
    }
  };
  await t.step("a scalar", () => check([[]]));
  await t.step("an empty tensor", () => check([[0]]));
  await t.step("an empty tensor of many dims between others", () => check([[2], [3, 0, 5], [1]]));
  await t.step("no tensor", () => check([]));
  await t.step("a scalar is not a vector of one", () => check([[], [1], [1, 1]]));
  await t.step("255 dims", () => check([[...new Array(254).fill(1), 3]]));
  await t.step("many tensors", () => check(Array.from({ length: 5_000 }, (_, i) => [i % 7])));
  await t.step("odd sizes", () => check([[1], [3, 5], [7], [], [11, 13], [17, 1, 19]]));
  await t.step(
    "above a read, a piece and a lane",
    () => check([[3], [2_500_000], [1_200_001], []]),
  );
  await t.step("small again", () => check([[3]]));
  await session.finish();
});

Deno.test("tensors that lie anywhere in a buffer of the caller", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const clients = await session.ranks();
  const buffers = clients.map(() => new Float32Array(100).fill(9));
  await round(clients, ({ rank }) => {
    const all = buffers[rank]!;
    all.fill(rank, 3, 8);
    all.fill(10 * rank, 50, 51);
    return [all.subarray(3, 8), { shape: [], data: all.subarray(50, 51) }, all.subarray(60, 60)];
  });
  for (const all of buffers) {
    const wanted = new Array(100).fill(9);
    wanted.fill(0.5, 3, 8);
    wanted[50] = 5;
    assertEquals([...all], wanted);
  }
  await session.finish();
});

Deno.test("a window of counts, parameters and buffers, with sizes that change", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  for (let window = 0; window < 12; window++) {
    const size = [1, 40_000, 3, 300_001][window % 4]!;
    const steps = clients.map(({ rank }) => (rank + window) % 3);
    const total = steps.reduce((sum, count) => sum + count, 0);
    await soon(
      `window ${window}`,
      Promise.all(clients.map(async (client) => {
        const mine = steps[client.rank]!;
        assertEquals([...await client.gatherCounts(mine)], steps);
        const weights = new Float32Array(size).fill(client.rank + window);
        const model = await client.allReduce([weights], { mass: mine });
        assertEquals(model.mass, total);
        const sum = steps.reduce((all, count, rank) => all + count * (rank + window), 0);
        assertEquals(weights[size - 1], f32(f32(sum) * f32(1 / total)));
        const buffers = [new Float32Array([client.rank]), new Float32Array(2).fill(1)];
        const moved = await client.allReduce(buffers, { mass: mine > 0 ? 1 : 0 });
        assertEquals(moved.mass, steps.filter((count) => count > 0).length);
      })),
    );
  }
  const { controller } = await session.finish();
  assertEquals(controller.rounds, 36);
});

Deno.test("a client says what it will not send, and lives on", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const [client, other] = await session.ranks();
  const one = new Float32Array(1);
  const rows: [tensors: TensorLike[], options: { mass: number }, text: string][] = [
    [[one], { mass: -1 }, "sending round 0: mass -1 (number) is not a finite number >= 0"],
    [[one], { mass: NaN }, "mass NaN"],
    [[one], { mass: Infinity }, "mass Infinity"],
    [
      [{ name: "w", shape: [2], data: one }],
      { mass: 1 },
      "sending w: shape [2] has 2 elements, its",
    ],
    [[{ shape: [-1, -1], data: one }], { mass: 1 }, "tensor 0 has the dim -1"],
    [[{ shape: [0.5, 2], data: one }], { mass: 1 }, "tensor 0 has the dim 0.5"],
    [[{ shape: new Array(256).fill(1), data: one }], { mass: 1 }, "tensor 0 has 256 dims"],
    [new Array(65_537).fill(one), { mass: 1 }, "65537 tensors, a frame holds at most 65536"],
  ];
  for (const [tensors, options, text] of rows) {
    const error = await failure(text, client!.allReduce(tensors, options), text);
    assert(error instanceof RangeError, `${error.name} instead of RangeError`);
  }
  await failure(
    "no such root",
    client!.broadcast([one], 2),
    "broadcasting from rank 2: expected 0 to 1",
  );
  const waiting = client!.allReduce([one], { mass: 1 });
  await failure("a second round", client!.allReduce([one], { mass: 1 }), "while round", "await it");
  await other!.allReduce([new Float32Array([4])], { mass: 1 });
  await soon("the round", waiting);
  assertEquals([...one], [2]);
  await client!.close();
  await failure("a closed client", client!.allReduce([one], { mass: 1 }), "rank 0 was closed");
  await session.finish();
});

Deno.test("a shape that the caller changes between rounds is read anew", async () => {
  await using session = await Session.start({ hosts: [[0]] });
  const [client] = await session.ranks();
  const shape = [2, 3];
  await client!.allReduce([{ shape, data: new Float32Array(6) }], { mass: 1 });
  shape[0] = 4;
  const data = new Float32Array(12).fill(2);
  await client!.allReduce([{ shape, data }], { mass: 1 });
  assertEquals([...data], new Array(12).fill(2));
  await session.finish();
});

Deno.test("a round that takes too long says so", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const quick = await session.rank(0, { roundTimeoutMs: 100 });
  const other = await session.rank(1);
  await failure(
    "the round",
    quick.allReduce([new Float32Array(1)], { mass: 1 }),
    /round 0 of rank 0: 127\.0\.0\.1:\d+ took longer than 100 ms/,
  );
  const values = new Float32Array([3]);
  assertEquals((await soon("the round", other.allReduce([values], { mass: 1 }))).mass, 2);
  assertEquals([...values], [1.5]);
  await session.finish();
});
