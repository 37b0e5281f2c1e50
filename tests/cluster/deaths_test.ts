// Processes that are killed or stopped in the middle of it all.
import { assertEquals } from "@std/assert";
import { Cluster } from "./cluster.ts";

Deno.test("processes: ranks killed before, inside and after their frame, then a relay", async () => {
  await using cluster = await Cluster.start([[0, 1, 2, 3], [4, 5]]);
  const [relay, lost] = cluster.relays;
  const [survivor, before, inside, after, other] = await Promise.all([
    cluster.ranks([0]),
    cluster.ranks([1]),
    cluster.ranks([2], { raw: true }),
    cluster.ranks([3], { raw: true }),
    cluster.ranks([4, 5]),
  ]);
  // A frame large enough to be on its way when its sender dies.
  const large = new Array(300_000).fill(8);
  const mine = (value: number) => new Array(300_000).fill(value);
  await inside.tell({ act: "send", values: [large], part: 0.5 });
  await inside.done();
  await after.tell({ act: "send", values: [large] });
  await after.done();
  for (const process of [before, inside, after]) process.signal("SIGKILL");
  // Between its frames a rank that is killed cannot be told from one that leaves.
  await relay!.logged("rank 1 left after 0 rounds");
  await relay!.logged("rank 2 is out in round 0", "the frame of rank 2", "the stream ended after");
  await relay!.logged("rank 3 is out in round 0", "its frame stays in the round");
  await other.begin([mine(2), mine(4)]);
  await survivor.begin([mine(6)]);
  // 6, 8, 2 and 4, by four: the half frame is in neither the sum nor the divisor.
  for (const process of [survivor, other]) {
    const { masses, values } = await process.round();
    for (const mass of masses) assertEquals(mass, 4);
    for (const list of values) assertEquals(list.findIndex((value) => value !== 5), -1);
  }
  for (const process of [before, inside, after]) await process.ends(137);

  await other.begin([[1], [1]]);
  lost!.signal("SIGKILL");
  await other.failed("127.0.0.1", "the result of round 1");
  await lost!.ends(137);
  await cluster.controller.logged("host host-1 is out in round 1 with ranks 4,5");
  await survivor.begin([[3]], [2]);
  const last = await survivor.round();
  assertEquals([last.masses, last.values], [[2], [[3]]]);
  await cluster.finish([survivor], [relay!]);
});

Deno.test("processes: a stopped rank and a stopped relay miss the deadline, the others go on", async () => {
  const server = { args: ["--round-deadline", "1s"] };
  await using cluster = await Cluster.start([[0, 1], [2]], server, { 0: server, 1: server });
  const [relay, stuck] = cluster.relays;
  const [survivor, stopped, far] = await Promise.all([
    cluster.ranks([0]),
    cluster.ranks([1]),
    cluster.ranks([2]),
  ]);
  stopped.signal("SIGSTOP");
  await far.begin([[7]]);
  await survivor.begin([[1]]);
  assertEquals(await survivor.round(), { masses: [2], values: [[4]] });
  assertEquals(await far.round(), { masses: [2], values: [[4]] });
  const late = "it did not deliver within 1000 ms of round 0's first frame";
  await relay!.logged("rank 1 is out in round 0", late);

  stuck!.signal("SIGSTOP");
  await survivor.begin([[5]]);
  assertEquals(await survivor.round(), { masses: [1], values: [[5]] });
  const text =
    "did not deliver within 1000 ms of round 1's first frame, nor 5000 ms after its ranks " +
    "were declared dead";
  await cluster.controller.logged("host host-1 has not delivered in round 1 after 1000 ms");
  await cluster.controller.logged("host host-1 is out in round 1 with ranks 2", text);

  // Awake again, both learn what they missed.
  stuck!.signal("SIGCONT");
  stopped.signal("SIGCONT");
  await stopped.begin([[1]]);
  await stopped.failed("refused rank 1 of 3 because", late);
  await far.begin([[1]]);
  await far.failed("refused rank 2 of 3");
  await stuck!.ends(3);
  await survivor.begin([[6]]);
  assertEquals(await survivor.round(), { masses: [1], values: [[6]] });
  await cluster.finish([survivor], [relay!]);
});
