// Rounds between real processes.
import { assertEquals } from "@std/assert";
import { Cluster } from "./cluster.ts";

Deno.test("processes: one host with one rank is the identity", async () => {
  await using cluster = await Cluster.start([[0]]);
  const rank = await cluster.ranks([0]);
  for (const mass of [1, 4]) {
    await rank.begin([[1.5, -0.25, 3e38 / 8, 0.1]], [mass]);
    const result = await rank.round();
    assertEquals(result, {
      masses: [mass],
      values: [[1.5, -0.25, 3e38 / 8, 0.1].map(Math.fround)],
    });
  }
  await cluster.finish([rank]);
});

Deno.test("processes: two hosts of two ranks, each rank a process", async () => {
  await using cluster = await Cluster.start([[0, 1], [2, 3]], { args: ["--kernel", "plain"] });
  const ranks = await Promise.all([0, 1, 2, 3].map((rank) => cluster.ranks([rank])));
  for (let round = 0; round < 3; round++) {
    await Promise.all(ranks.map((process, rank) => process.begin([[rank, round]], [rank + 1])));
    for (const process of ranks) {
      const tenth = Math.fround(1 / 10);
      assertEquals(await process.round(), {
        masses: [10],
        values: [[20, 10 * round].map((value) => Math.fround(value * tenth))],
      });
    }
  }
  for (const process of ranks) await process.tell({ act: "counts", masses: [7] });
  for (const process of ranks) assertEquals(await process.done(), [[7, 7, 7, 7]]);
  await cluster.finish(ranks);
});

Deno.test("processes: three hosts of one, two and four ranks", async () => {
  await using cluster = await Cluster.start([[0], [1, 2], [3, 4, 5, 6]]);
  const ranks = await Promise.all([[0], [1, 2], [3, 4, 5, 6]].map((host) => cluster.ranks(host)));
  // Sums of 1e8, 1 and -1e8 depend on the order, which is that of hosts, and of ranks within one.
  const given = [1e8, 1, -1e8, 3, 1e8, 5, -1e8];
  const sum = (list: number[]) => list.reduce((total, value) => Math.fround(total + value), 0);
  const total = sum([given[0]!, sum(given.slice(1, 3)), sum(given.slice(3))]);
  for (let round = 0; round < 2; round++) {
    const places = [[0], [1, 2], [3, 4, 5, 6]];
    await Promise.all(
      ranks.map((process, host) => process.begin(places[host]!.map((rank) => [given[rank]!]))),
    );
    for (const [host, process] of ranks.entries()) {
      const mean = Math.fround(total * Math.fround(1 / 7));
      assertEquals(await process.round(), {
        masses: places[host]!.map(() => 7),
        values: places[host]!.map(() => [mean]),
      });
    }
  }
  await cluster.finish(ranks);
});

Deno.test("processes: {1, 1, 1} and {5} average to 2; the odd and the unsigned are out", async () => {
  await using cluster = await Cluster.start([[0, 1, 2, 4, 5], [3]]);
  const host = await cluster.ranks([0, 1, 2]);
  const other = await cluster.ranks([3]);
  const odd = await cluster.ranks([4]);
  const unsigned = await cluster.ranks([5], { salt: "5ce0a1734bd2986f11f8e02c93b64d7a" });
  await unsigned.begin([[9]]);
  await unsigned.failed("refused rank 5 of 6", "the salts of the two processes differ");
  await odd.begin([[9, 9]]);
  await host.begin([[1], [1], [1]]);
  await other.begin([[5]]);
  const text =
    "folding the frame of rank 4 with that of rank 0: tensor 0 has shape [2], expected [1]; " +
    "the round goes on without rank 4";
  await odd.failed("refused rank 4 of 6 because: ", text);
  assertEquals(await host.round(), { masses: [4, 4, 4], values: [[2], [2], [2]] });
  assertEquals(await other.round(), { masses: [4], values: [[2]] });
  await cluster.relays[0]!.logged("rank 5 is out in round 0", "its MAC does not match");
  await cluster.relays[0]!.logged("rank 4 is out in round 0", text);
  // Both may come back, told better.
  const back = await cluster.ranks([4, 5]);
  await host.tell({ act: "broadcast", values: [[0], [0], [0]], root: 5 });
  await other.tell({ act: "broadcast", values: [[0]], root: 5 });
  await back.tell({ act: "broadcast", values: [[8], [6]], root: 5 });
  assertEquals(await host.done(), [[6], [6], [6]]);
  assertEquals(await other.done(), [[6]]);
  assertEquals(await back.done(), [[6], [6]]);
  await cluster.finish([host, other, back]);
});
