// Frames large enough for threads, folds in several pieces and groups of frames folded ahead.
import { assert, assertEquals } from "@std/assert";
import { average, Session } from "./session.ts";

const LENGTHS = [1_100_003, 3, 70_000, 0];

function tensors(rank: number): Float32Array[] {
  return LENGTHS.map((length, t) =>
    Float32Array.from({ length }, (_, i) => ((i * 7919 + rank * 104_729 + t) % 2003 - 1001) / 37)
  );
}

/** The sum in rank order, host by host, divided once, as f32 arithmetic gives it. */
function expected(
  hosts: readonly (readonly number[])[],
  masses: readonly number[],
): Float32Array[] {
  const scaled = masses.map((mass, rank) =>
    tensors(rank).map((tensor) => tensor.map((value) => value * mass))
  );
  const factor = Math.fround(1 / masses.reduce((a, b) => a + b, 0));
  return LENGTHS.map((length, t) => {
    const out = new Float32Array(length);
    for (let i = 0; i < length; i++) {
      let total = 0;
      for (const ranks of hosts) {
        let sum = 0;
        for (const rank of ranks) sum = Math.fround(sum + scaled[rank]![t]![i]!);
        total = Math.fround(total + sum);
      }
      out[i] = total * factor;
    }
    return out;
  });
}

for (const workers of [0, 2]) {
  Deno.test(`large frames, ${workers} threads: bits of sequential sums, again and again`, async () => {
    const hosts = [[0, 1, 2, 3, 4, 5], [6]];
    await using session = await Session.start({ hosts, workers });
    const clients = await session.ranks();
    const masses = [1, 2, 3, 0.25, 5, 1, 8];
    const wanted = expected(hosts, masses);
    for (let round = 0; round < 2; round++) {
      const given = clients.map(({ rank }) => tensors(rank));
      const results = await Promise.all(clients.map(async (client, i) => {
        // The last ranks come late, so that the first four are folded ahead.
        if (client.rank >= 4) await new Promise((resolve) => setTimeout(resolve, 150));
        return await client.allReduce(given[i]!, { mass: masses[i]! });
      }));
      for (const { mass } of results) assertEquals(mass, 20.25);
      for (const own of given) {
        own.forEach((tensor, t) => {
          const bits = new Uint32Array(tensor.buffer);
          const want = new Uint32Array(wanted[t]!.buffer);
          const at = bits.findIndex((value, i) => value !== want[i]);
          assertEquals(
            at,
            -1,
            `tensor ${t} differs at ${at}: ${tensor[at]}, not ${wanted[t]![at]}`,
          );
        });
      }
    }
  });
}

Deno.test("large frames: rounds of other sizes in between", async () => {
  await using session = await Session.start({ hosts: [[0, 1]], workers: 1 });
  const clients = await session.ranks();
  const run = async (length: number) => {
    const given = clients.map(({ rank }) => new Float32Array(length).fill(rank + 1));
    await average(clients, given, [1, 1]);
    for (const values of given) assert(values.every((value) => value === 1.5), `${length} values`);
  };
  for (let i = 0; i < 5; i++) {
    for (const length of [2_000_000, 10, 200_000]) await run(length);
  }
});
