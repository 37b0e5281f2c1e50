// A controller against relays that speak the wire by hand.
import { assert, assertEquals } from "@std/assert";
import { Controller, type ControllerOutcome } from "../../controller/server.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { frameOf, RawChannel } from "../cluster/raw.ts";
import { pause, soon } from "../cluster/waiting.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";

interface Rig extends AsyncDisposable {
  readonly outcome: Promise<ControllerOutcome>;
  relay(name: string, ranks: number[]): Promise<RawChannel>;
}

async function start(worldSize: number, roundDeadlineMs = 10_000): Promise<Rig> {
  const listening = Promise.withResolvers<Address>();
  const stop = new AbortController();
  const outcome = Controller.run({
    worldSize,
    listen: { hostname: "127.0.0.1", port: 0 },
    salt: SALT,
    frameCeilingBytes: 65_536,
    workers: 0,
    joinDeadlineMs: 10_000,
    roundDeadlineMs,
    kernel: (arena) => Promise.resolve(SimdKernel.create(arena)),
    onListening: listening.resolve,
  }, stop.signal);
  outcome.catch(() => {});
  const address = formatAddress(await soon("the controller listens", listening.promise));
  const channels: RawChannel[] = [];
  return {
    outcome,
    async relay(name, ranks) {
      const channel = await RawChannel.join(address, name, ranks);
      channels.push(channel);
      return channel;
    },
    async [Symbol.asyncDispose]() {
      for (const channel of channels) channel.close();
      stop.abort(new Error("stopped by the test"));
      await soon("the controller ends", Promise.allSettled([outcome]));
    },
  };
}

Deno.test("controller: hosts are folded by their lowest rank, divided once, signed once", async () => {
  await using rig = await start(6);
  const late = await rig.relay("late", [2, 5]);
  const last = await rig.relay("last", [3, 4]);
  const first = await rig.relay("first", [0, 1]);
  for (const order of [[late, last, first], [first, last, late], [last, first, late]]) {
    const values = new Map([[first, 1e8], [late, 1], [last, -1e8]]);
    for (const channel of order) {
      await channel.sendFrame("host_frame", frameOf([[values.get(channel)!]], { weight: 0.25 }));
    }
    for (const channel of order) {
      const { header, values } = await channel.expectFrame("broadcast");
      // (1e8 + 1) - 1e8 in f32.
      assertEquals([header.kind, header.weight, values], ["model", 0.75, [[0]]]);
    }
  }
  for (const channel of [first, late, last]) {
    await channel.sendFrame("host_frame", frameOf([[3, 5]], { weight: 2 }));
  }
  const results = [];
  for (const channel of [first, late, last]) results.push((await channel.readRecord()).payload);
  assertEquals(results[1], results[0]);
  assertEquals(results[2], results[0]);
});

Deno.test("controller: a host is declared dead rank by rank, and may still deliver", async () => {
  await using rig = await start(5, 150);
  const quick = await rig.relay("quick", [0]);
  const slow = await rig.relay("slow", [1, 2, 4]);
  const idle = await rig.relay("idle", [3]);
  await slow.sendControl({ type: "rank_exit", rank: 2 });
  await quick.sendFrame("host_frame", frameOf([[2]]));
  const dead = [await slow.expectControl("declare_dead"), await slow.expectControl("declare_dead")];
  assertEquals(dead.map(({ rank }) => rank), [1, 4]);
  assertEquals((await idle.expectControl("declare_dead")).rank, 3);
  await slow.sendFrame("host_frame", frameOf([[6]]));
  await slow.sendControl({ type: "rank_exit", rank: 4 });
  await idle.sendControl({ type: "rank_exit", rank: 3 });
  for (const channel of [quick, slow]) {
    const { header, values } = await channel.expectFrame("broadcast");
    assertEquals([header.weight, values], [2, [[4]]]);
  }
  // The host whose rank is gone is not waited for.
  await slow.sendFrame("host_frame", frameOf([[1]]));
  await quick.sendFrame("host_frame", frameOf([[1]]));
  assertEquals((await quick.expectFrame("broadcast")).header.weight, 2);
});

Deno.test("controller: a host that neither delivers nor answers is out after the grace", async () => {
  await using rig = await start(2, 150);
  const quick = await rig.relay("quick", [0]);
  const stuck = await rig.relay("stuck", [1]);
  await quick.sendFrame("host_frame", frameOf([[2]]));
  const { header } = await quick.expectFrame("broadcast");
  assertEquals(header.weight, 1);
  assertEquals((await stuck.expectControl("declare_dead")).rank, 1);
  const said = await stuck.refusal();
  assert(
    said.includes(
      'host "stuck" did not deliver within 150 ms of round 0\'s first frame, nor 5000 ms after its ' +
        "ranks were declared dead",
    ),
    said,
  );
});

Deno.test("controller: ends when every rank has left, and says who was lost", async (t) => {
  await t.step("all left", async () => {
    await using rig = await start(3);
    const a = await rig.relay("a", [0, 2]);
    const b = await rig.relay("b", [1]);
    for (const rank of [2, 0]) await a.sendControl({ type: "rank_exit", rank });
    await b.sendControl({ type: "rank_exit", rank: 1 });
    const outcome = await soon("the end", rig.outcome);
    assertEquals(outcome, { rounds: 0, left: outcome.left, lost: [] });
    assertEquals(outcome.left.toSorted(), [0, 1, 2]);
  });
  await t.step("one relay lost with its frame in the round", async () => {
    await using rig = await start(3);
    const a = await rig.relay("a", [0, 2]);
    const b = await rig.relay("b", [1]);
    await a.sendFrame("host_frame", frameOf([[1]], { weight: 2 }));
    a.close();
    await b.sendFrame("host_frame", frameOf([[4]]));
    const { header, values } = await b.expectFrame("broadcast");
    assertEquals([header.weight, values], [3, [[Math.fround(5 * Math.fround(1 / 3))]]]);
    await b.sendControl({ type: "rank_exit", rank: 1 });
    assertEquals(await soon("the end", rig.outcome), { rounds: 1, left: [1], lost: [0, 2] });
  });
  await t.step("all relays lost", async () => {
    await using rig = await start(2);
    (await rig.relay("a", [0, 1])).close();
    assertEquals(await soon("the end", rig.outcome), { rounds: 0, left: [], lost: [0, 1] });
  });
});

Deno.test("controller: rounds without mass, sums, and schemas that change", async () => {
  await using rig = await start(2);
  const a = await rig.relay("a", [0]);
  const b = await rig.relay("b", [1]);
  const rows: [frames: Uint8Array[], weight: number, values: number[][]][] = [
    [[frameOf([[1, 2]], { weight: 0 }), frameOf([[3, 4]], { weight: 0 })], 0, [[4, 6]]],
    [
      [frameOf([[1], [2]], { kind: "control" }), frameOf([[3], [4]], { kind: "control" })],
      2,
      [[4], [6]],
    ],
    [[frameOf([], { weight: 3 }), frameOf([], { weight: 4 })], 7, []],
    [[frameOf([[1]], { weight: 2 }), frameOf([[4]], { weight: 0 })], 2, [[2.5]]],
  ];
  for (const [frames, weight, values] of rows) {
    await b.sendFrame("host_frame", frames[1]!);
    await a.sendFrame("host_frame", frames[0]!);
    for (const channel of [a, b]) {
      const result = await channel.expectFrame("broadcast");
      assertEquals([result.header.weight, result.values], [weight, values]);
    }
  }
});
Deno.test("controller: a rank counts once a round, also when its relay returns under another number", async () => {
  await using rig = await start(3);
  const other = await rig.relay("b", [2]);
  // Its rank 0 is away, so rank 1 gives it its number.
  const relay = await rig.relay("a", [1]);
  await relay.sendFrame("host_frame", frameOf([[10]], { weight: 1 }));
  relay.close();
  let again: RawChannel | undefined;
  for (let tries = 0; again === undefined; tries++) {
    await pause(20);
    // Refused until the controller has noticed that the old one is gone.
    again = await rig.relay("a", [0, 1]).catch((error) => {
      if (tries > 200) throw error;
      return undefined;
    });
  }
  await again.sendFrame("host_frame", frameOf([[30]], { weight: 1 }));
  await other.sendFrame("host_frame", frameOf([[20]], { weight: 1 }));
  const first = await other.expectFrame("broadcast");
  assertEquals([first.header.weight, first.values], [2, [[15]]]);
  await other.sendFrame("host_frame", frameOf([[40]], { weight: 1 }));
  for (const channel of [other, again]) {
    const { header, values } = await channel.expectFrame("broadcast");
    assertEquals([header.weight, values], [2, [[35]]]);
  }
});
