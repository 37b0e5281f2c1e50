// Ranks in Python and in TypeScript in one session: the same rounds, the same bits.
import { assertEquals, assertStringIncludes } from "@std/assert";
import { TERMS } from "../../serve/terms.ts";
import { Cluster } from "../cluster/cluster.ts";
import { Session } from "../cluster/session.ts";
import { type Averaged, hexed, PythonRank } from "./python_rank.ts";
import { pythonTest } from "./interpreters.ts";
import { soon } from "../cluster/waiting.ts";

/** Values whose sum depends on its order, with some that are hard to represent. */
function values(rank: number, length: number): Float32Array {
  let state = rank * 2_654_435_761 + 1;
  return Float32Array.from({ length }, () => {
    state = Math.imul(state ^ state >>> 15, 0x2c1b3c6d) + 0x9e3779b9 | 0;
    return (state / 2 ** 20) * 10 ** ((state >>> 3) % 9 - 4);
  });
}

/** Small and large tensors: some are gathered into one write, others are sent from where they lie. */
function model(rank: number): Record<string, Float32Array> {
  return {
    embed: values(rank, 140_001),
    scale: values(rank + 100, 1),
    none: new Float32Array(0),
    head: values(rank + 200, 777),
  };
}

const named = (tensors: Record<string, Float32Array>) =>
  Object.entries(tensors).map(([name, data]) => ({ name, data }));

pythonTest(
  "python: two ranks in Python and two in TypeScript get the same bits",
  "numpy",
  async (python) => {
    await using session = await Session.start({ hosts: [[0, 1], [2, 3]] });
    const clients = await Promise.all([session.rank(1), session.rank(2)]);
    await using first = new PythonRank(python, {
      relay: session.relayOf(0),
      rank: 0,
      worldSize: 4,
    });
    await using last = new PythonRank(python, { relay: session.relayOf(3), rank: 3, worldSize: 4 });
    await Promise.all([first.connected(), last.connected()]);
    for (const masses of [[1, 1, 1, 1], [0.3, 7, 0, 2.5]]) {
      await first.begin(model(0), { mass: masses[0]! });
      await last.begin(model(3), { mass: masses[3]! });
      const own = [model(1), model(2)];
      const results = await soon(
        "the round",
        Promise.all(
          clients.map((client, i) => client.allReduce(named(own[i]!), { mass: masses[i + 1]! })),
        ),
      );
      const mass = results[0]!.mass;
      assertEquals(mass, masses.reduce((sum, each) => sum + each));
      const wanted = hexed(own[0]!);
      assertEquals(hexed(own[1]!), wanted);
      assertEquals(await first.done<Averaged>(), { mass, tensors: wanted });
      assertEquals(await last.done<Averaged>(), { mass, tensors: wanted });
      // What this process computes of the same frames: hosts in the order of their ranks, then one division.
      const f = Math.fround;
      const given = [0, 1, 2, 3].map((rank) => model(rank).embed!);
      const term = (rank: number, i: number) =>
        masses[rank] === 0 ? 0 : f(given[rank]![i]! * f(masses[rank]!));
      for (const i of [0, 5, 140_000]) {
        const sum = f(f(term(0, i) + term(1, i)) + f(term(2, i) + term(3, i)));
        assertEquals(own[0]!.embed![i], f(sum * f(1 / mass)));
      }
    }
    await Promise.all([first.close(), last.close()]);
    await session.finish();
  },
);

pythonTest(
  "python: real processes; counts, broadcasts and sums across languages",
  "numpy",
  async (python) => {
    await using cluster = await Cluster.start([[0, 1], [2]]);
    const ranks = await cluster.ranks([1]);
    const place = (host: number, rank: number) => ({
      relay: cluster.relays[host]!.address,
      rank,
      worldSize: 3,
    });
    await using zero = new PythonRank(python, place(0, 0));
    await using two = new PythonRank(python, place(1, 2));
    await Promise.all([zero.connected(), two.connected()]);
    const pythons = [zero, two];

    for (const [i, each] of pythons.entries()) await each.tell({ act: "counts", count: 10 + i });
    await ranks.tell({ act: "counts", masses: [7] });
    for (const each of pythons) assertEquals(await each.done(), [10, 7, 11]);
    assertEquals(await ranks.done(), [[10, 7, 11]]);

    for (const root of [0, 1]) {
      const given = (value: number) => Float32Array.of(value, -value);
      for (const [i, each] of pythons.entries()) {
        await each.tell({ act: "broadcast", root, tensors: hexed({ a: given(2 * i) }) });
      }
      await ranks.tell({ act: "broadcast", values: [[1, -1]], root });
      const wanted = Float32Array.of(root, 0 - root);
      assertEquals(await ranks.done(), [[root, 0 - root]]);
      for (const each of pythons) {
        assertEquals((await each.done<Averaged>()).tensors, hexed({ a: wanted }));
      }
    }
    await ranks.begin([[3]], [5]);
    for (const each of pythons) {
      await each.begin({ a: Float32Array.of(6) }, {
        mass: 2,
        kind: "model",
      });
    }
    for (const each of pythons) assertEquals((await each.done<Averaged>()).mass, 9);
    await ranks.round();
    await Promise.all(pythons.map((each) => each.close()));
    await cluster.finish([ranks]);
  },
);

pythonTest(
  "python: a rank that is refused is told why, and the others go on",
  "numpy",
  async (python) => {
    await using session = await Session.start({ hosts: [[0, 1, 2]] });
    const relay = session.relayOf(0);
    await using odd = new PythonRank(python, { relay, rank: 1, worldSize: 3 });
    await using poison = new PythonRank(python, { relay, rank: 2, worldSize: 3 });
    await Promise.all([odd.connected(), poison.connected()]);
    const rows: [rank: number, worldSize: number, texts: string[]][] = [
      [1, 3, ["refused rank 1 of 3 because: ", "connected"]],
      [0, 4, ["refused rank 0 of 4 because: ", "world size 4"]],
    ];
    for (const [rank, worldSize, texts] of rows) {
      await using refused = new PythonRank(python, { relay, rank, worldSize });
      const said = await refused.failed();
      for (const text of ["TransportError", ...texts]) assertStringIncludes(said, text);
    }
    const client = await session.rank(0);
    const data = Float32Array.of(4);
    await poison.begin({ a: Float32Array.of(NaN) }, { mass: 1 });
    assertStringIncludes(await poison.failed(), "refused rank 2 of 3 because: ");
    await odd.begin({ a: Float32Array.of(1, 2) }, { mass: 1 });
    await soon("the round", client.allReduce([{ name: "a", data }], { mass: 2 }));
    assertEquals(data, Float32Array.of(4));
    assertStringIncludes(await odd.failed(), "tensor 0 has shape [2], expected [1]");
  },
);

pythonTest("python: sealed ranks, beside a relay that takes no others", "numpy", async (python) => {
  const terms = { ...TERMS, requireNonce: true };
  await using session = await Session.start({ hosts: [[0, 1]], relays: { 0: { terms } } });
  const place = { relay: session.relayOf(0), rank: 0, worldSize: 2 };
  await using plain = new PythonRank(python, place);
  assertStringIncludes(await plain.failed(), "connect it with the option seal");
  await using sealed = new PythonRank(python, { ...place, seal: true });
  await sealed.connected();
  const client = await session.rank(1, { seal: true });
  for (let round = 0; round < 3; round++) {
    const data = values(1, 200_000);
    await sealed.begin({ a: values(0, 200_000) }, { mass: 1 });
    await soon("the round", client.allReduce([{ name: "a", data }], { mass: 1 }));
    assertEquals((await sealed.done<Averaged>()).tensors, hexed({ a: data }));
  }
  await Promise.all([sealed.close(), client.close()]);
});

pythonTest("python: another salt is named as the likely cause", "numpy", async (python) => {
  await using session = await Session.start({ hosts: [[0]] });
  const place = {
    relay: session.relayOf(0),
    rank: 0,
    worldSize: 1,
    salt: "5b0f9e3ac7d214686af1e09b3d7c52e4",
  };
  await using stranger = new PythonRank(python, place);
  await stranger.connected();
  await stranger.begin({ a: Float32Array.of(1) }, { mass: 1 });
  assertStringIncludes(await stranger.failed(), "the salts of the two processes differ");
});

pythonTest("python: a rank that dies leaves the round to the others", "numpy", async (python) => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  await using dying = new PythonRank(python, {
    relay: session.relayOf(0),
    rank: 0,
    worldSize: 2,
  });
  await dying.connected();
  const client = await session.rank(1);
  const data = Float32Array.of(4);
  const round = client.allReduce([data], { mass: 3 });
  dying.kill("SIGKILL");
  assertEquals((await soon("the round", round)).mass, 3);
  assertEquals(data, Float32Array.of(4));
});

pythonTest(
  "python: a rank finds its place and its relay in the environment",
  "numpy",
  async (python) => {
    await using session = await Session.start({ hosts: [[0, 1]] });
    await using one = new PythonRank(python, undefined, {
      RANK: "1",
      WORLD_SIZE: "2",
      TIERFOLD_RELAY: session.relayOf(1),
    });
    await one.connected();
    await one.tell({ act: "place" });
    assertEquals(await one.done(), [1, 2]);
    await one.close();
  },
);

interface State {
  readonly mass: number;
  readonly mover_mass: number;
  readonly steps: number[];
  readonly weight: number[];
  readonly mean: number[];
  readonly tracked: number;
  readonly table: number[];
}

pythonTest(
  "python: torch tensors and whole modules, mixed with numpy and TypeScript",
  "torch",
  async (python) => {
    await using session = await Session.start({ hosts: [[0, 1, 2]] });
    const relay = session.relayOf(0);
    await using tensors = new PythonRank(python, { relay, rank: 0, worldSize: 3 });
    await using arrays = new PythonRank(python, { relay, rank: 1, worldSize: 3 });
    await Promise.all([tensors.connected(), arrays.connected()]);
    const client = await session.rank(2);
    await tensors.begin(model(0), { mass: 1.5, torch: true });
    await arrays.begin(model(1), { mass: 2 });
    const own = model(2);
    await soon("the round", client.allReduce(named(own), { mass: 0.1 }));
    const wanted = { mass: 1.5 + 2 + 0.1, tensors: hexed(own) };
    assertEquals(await tensors.done<Averaged>(), wanted);
    assertEquals(await arrays.done<Averaged>(), wanted);
    await client.close();

    // Parameters by steps, statistics by who moved, counters by the largest, tables as they are.
    await tensors.tell({ act: "state", value: 1, steps: 3, tracked: 2 ** 40 + 1 });
    await arrays.tell({ act: "state", value: 5, steps: 1, tracked: 9 });
    for (const [rank, each] of [tensors, arrays].entries()) {
      assertEquals(await each.done<State>(), {
        mass: 4,
        mover_mass: 2,
        steps: [3, 1, 0],
        weight: new Array(6).fill(2),
        mean: new Array(3).fill(3),
        tracked: 2 ** 40 + 1,
        table: [rank, 1],
      });
    }
    // A rank without a step gets all of it, and adds nothing.
    await tensors.tell({ act: "state", value: 1, steps: 0, tracked: 1 });
    await arrays.tell({ act: "state", value: 5, steps: 2, tracked: 2 });
    for (const each of [tensors, arrays]) {
      const { mass, mover_mass, weight, mean, tracked } = await each.done<State>();
      assertEquals([mass, mover_mass, weight[0], mean[0], tracked], [2, 1, 5, 5, 2]);
    }
    // A broadcast takes floats and integers along, exactly; what is neither stays.
    await tensors.tell({ act: "start", value: 1.5, tracked: -3 });
    await arrays.tell({ act: "start", value: 2.5, tracked: 2 ** 50 + 1 });
    for (const each of [tensors, arrays]) {
      assertEquals(await each.done(), {
        weight: 2.5,
        tracked: 2 ** 50 + 1,
        table: [1, 1],
        flag: each === arrays,
      });
    }
    await Promise.all([tensors.close(), arrays.close()]);
    await session.finish();
  },
);
