// A relay against a controller that speaks the wire by hand.
import { assert, assertEquals } from "@std/assert";
import { SimdKernel } from "../../kernels/simd.ts";
import { RankClient } from "../../rank/client.ts";
import { Relay } from "../../relay/server.ts";
import type { RelayOutcome, RelaySettings } from "../../relay/settings.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";
import { encodeRecord } from "../../wire/mux.ts";
import { encodeRefusal } from "../../wire/refusal.ts";
import { SESSION_SALT as SALT, unhex } from "../vectors.ts";
import { frameOf, type RawChannel, RawController } from "../cluster/raw.ts";
import { failure, pause, soon } from "../cluster/waiting.ts";

interface Rig extends AsyncDisposable {
  readonly controller: RawController;
  readonly channel: RawChannel;
  readonly hello: { host: string; ranks: number[] };
  readonly outcome: Promise<RelayOutcome>;
  rank(rank: number): Promise<RankClient>;
}

async function start(
  ranks: number[],
  options: Partial<RelaySettings> = {},
  answers = true,
): Promise<Rig> {
  const controller = new RawController();
  const listening = Promise.withResolvers<Address>();
  const stop = new AbortController();
  const outcome = Relay.run({
    host: "here",
    ranks,
    worldSize: 4,
    listen: { hostname: "127.0.0.1", port: 0 },
    controller: controller.address,
    salt: SALT,
    frameCeilingBytes: 65_536,
    workers: 0,
    connectDeadlineMs: 5_000,
    joinDeadlineMs: 5_000,
    roundDeadlineMs: 5_000,
    kernel: (arena) => Promise.resolve(SimdKernel.create(arena)),
    onListening: listening.resolve,
    ...options,
  }, stop.signal);
  outcome.catch(() => {});
  const relay = formatAddress(await soon("the relay listens", listening.promise));
  const { channel, ...hello } = await controller.accept(answers);
  const clients: RankClient[] = [];
  return {
    controller,
    channel,
    hello,
    outcome,
    async rank(rank) {
      const client = await RankClient.connect({ relay, rank, worldSize: 4, salt: SALT });
      clients.push(client);
      return client;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(clients.map((client) => client.close()));
      channel.close();
      stop.abort(new Error("stopped by the test"));
      await soon("the relay ends", Promise.allSettled([outcome]));
      controller[Symbol.dispose]();
    },
  };
}

/** A round of one value, whose failure is the caller's to look at. */
function begin(client: RankClient, value: number): { data: Float32Array; round: Promise<unknown> } {
  const data = new Float32Array([value]);
  const round = client.allReduce([data], { mass: 1 });
  round.catch(() => {});
  return { data, round };
}

Deno.test("relay: Hello, the fold undivided, the result verbatim, exits in order", async () => {
  await using rig = await start([1, 3]);
  assertEquals([rig.hello.host, rig.hello.ranks], ["here", [1, 3]]);
  const one = await rig.rank(1);
  const three = await rig.rank(3);
  const data = [new Float32Array([1, 2]), new Float32Array([10, 20])];
  const rounds = [
    one.allReduce([data[0]!], { mass: 0.5 }),
    three.allReduce([data[1]!], { mass: 2 }),
  ];
  const { header, values } = await rig.channel.expectFrame("host_frame");
  assertEquals([header.kind, header.weight, values], ["model", 2.5, [[20.5, 41]]]);
  // Records for ranks of another protocol are left alone.
  await rig.channel.sendFrame("data", new Uint8Array(100));
  await rig.channel.sendFrame("broadcast", frameOf([[7, 8]], { weight: 9 }));
  for (const { mass } of await soon("the round", Promise.all(rounds))) assertEquals(mass, 9);
  for (const value of data) assertEquals([...value], [7, 8]);
  await three.close();
  assertEquals((await rig.channel.expectControl("rank_exit")).rank, 3);
  await one.close();
  assertEquals((await rig.channel.expectControl("rank_exit")).rank, 1);
  assertEquals(await soon("the relay ends", rig.outcome), { rounds: 1, left: [3, 1], lost: [] });
});

Deno.test("relay: an exit never overtakes the frame that the rank is in", async () => {
  await using rig = await start([0, 1]);
  const zero = await rig.rank(0);
  const one = await rig.rank(1);
  const leaver = begin(zero, 5);
  await pause(30);
  await zero.close();
  await failure("the leaver", leaver.round, "rank 0 was closed");
  await pause(30);
  const stayer = begin(one, 7);
  const { header, values } = await rig.channel.expectFrame("host_frame");
  assertEquals([header.weight, values], [2, [[12]]]);
  assertEquals((await rig.channel.expectControl("rank_exit")).rank, 0);
  await rig.channel.sendFrame("broadcast", frameOf([[6]], { weight: 2 }));
  await soon("the round", stayer.round);
  assertEquals([...stayer.data], [6]);
});

Deno.test("relay: DeclareDead costs who has not delivered, and nobody else", async () => {
  await using rig = await start([0, 1, 2]);
  const clients = [await rig.rank(0), await rig.rank(1)];
  const [zero, one] = [begin(clients[0]!, 1), begin(clients[1]!, 2)];
  await pause(30);
  // A stranger, one that has delivered, and one that never connected.
  for (const rank of [9, 1, 2]) await rig.channel.sendControl({ type: "declare_dead", rank });
  const exit = await rig.channel.expectControl("rank_exit");
  assertEquals(exit.rank, 2);
  const { header, values } = await rig.channel.expectFrame("host_frame");
  assertEquals([header.weight, values], [2, [[3]]]);
  // Now that the frame is up it is too late to be too late.
  await rig.channel.sendControl({ type: "declare_dead", rank: 0 });
  await rig.channel.sendFrame("broadcast", frameOf([[1.5]], { weight: 2 }));
  await soon("the round", Promise.all([zero!.round, one!.round]));
  assertEquals([...zero!.data, ...one!.data], [1.5, 1.5]);
});

Deno.test("relay: a rank that comes back is told to the controller by a new Hello", async () => {
  await using rig = await start([0, 1]);
  const zero = await rig.rank(0);
  await (await rig.rank(1)).close();
  assertEquals((await rig.channel.expectControl("rank_exit")).rank, 1);
  await rig.rank(1);
  const hello = await rig.channel.expectControl("hello");
  assertEquals([hello.host, hello.ranks], ["here", [0, 1]]);
  await zero.close();
  assertEquals((await rig.channel.expectControl("rank_exit")).rank, 0);
});

Deno.test("relay: what a controller must not do ends the session, and the ranks learn why", async (t) => {
  const rows: {
    name: string;
    act: (channel: RawChannel) => Promise<void> | void;
    text: string;
    afterFrame?: boolean;
  }[] = [
    {
      name: "a result before this host's frame",
      act: (channel) => channel.sendFrame("broadcast", frameOf([[1]])),
      text: "the controller sent a result in round 0 before this host's frame",
    },
    {
      name: "a result of another schema",
      afterFrame: true,
      act: (channel) => channel.sendFrame("broadcast", frameOf([[1, 2]])),
      text:
        "reading the result of round 0 from the controller: tensor 0 has shape [2], expected [1]",
    },
    {
      name: "a result of another kind",
      afterFrame: true,
      act: (channel) => channel.sendFrame("broadcast", frameOf([[1]], { kind: "control" })),
      text: "it is a control frame, expected model",
    },
    {
      name: "a record whose tag is wrong",
      afterFrame: true,
      act: (channel) =>
        channel.write(encodeRecord("broadcast", 0, frameOf([[1]]), unhex("11".repeat(16)))),
      text: "verifying a broadcast record of 43 bytes: its MAC does not match",
    },
    {
      name: "a host's frame",
      afterFrame: true,
      act: (channel) => channel.sendFrame("host_frame", frameOf([[1]])),
      text: "a host_frame came, which only goes the other way",
    },
    {
      name: "a rank's exit",
      act: (channel) => channel.sendControl({ type: "rank_exit", rank: 0 }),
      text: "a rank_exit came, which only goes the other way",
    },
    {
      name: "garbage",
      act: (channel) => channel.write(new Uint8Array(30).fill(0x42)),
      text: "reading a record's header: magic 0x42424242, expected 0xf10d17d0",
    },
    {
      name: "a refusal",
      act: (channel) => channel.write(encodeRefusal("it is too late", SALT)),
      text: "refused us because: it is too late",
    },
    {
      name: "silence and the end",
      act: (channel) => channel.close(),
      text: "closed the channel",
    },
  ];
  for (const { name, act, text, afterFrame = false } of rows) {
    await t.step(name, async () => {
      await using rig = await start([0, 1]);
      const zero = begin(await rig.rank(0), 1);
      const one = afterFrame ? begin(await rig.rank(1), 2) : undefined;
      if (afterFrame) await rig.channel.expectFrame("host_frame");
      else await pause(20);
      await act(rig.channel);
      await failure("the relay", rig.outcome, text);
      for (const begun of [zero, one]) {
        if (begun === undefined) continue;
        await failure("a rank", begun.round, "because: the relay of host here ended", text);
      }
      assertEquals([...zero.data], [1]);
    });
  }
});

Deno.test("relay: a result passes verbatim, so that its ranks check its own tag", async () => {
  await using rig = await start([0]);
  const { data, round } = begin(await rig.rank(0), 1);
  await rig.channel.expectFrame("host_frame");
  await rig.channel.sendFrame("broadcast", frameOf([[1]], { salt: unhex("11".repeat(16)) }));
  await failure("the rank", round, "verifying a round frame: its MAC does not match");
  assertEquals([...data], [1]);
  assertEquals(await soon("the relay ends", rig.outcome), { rounds: 1, left: [0], lost: [] });
});

Deno.test("relay: a controller that does not answer", async (t) => {
  await t.step("Hello", async () => {
    await using rig = await start([0], { connectDeadlineMs: 200 }, false);
    await failure("the relay", rig.outcome, "waiting for the controller's HelloAck", "took longer");
  });
  await t.step("Hello, but closes", async () => {
    await using rig = await start([0], {}, false);
    rig.channel.close();
    await failure("the relay", rig.outcome, "closed the channel at Hello; its log says why");
  });
  await t.step("Hello, but says something else", async () => {
    await using rig = await start([0], {}, false);
    await rig.channel.sendControl({ type: "declare_dead", rank: 0 });
    await failure("the relay", rig.outcome, "waiting for HelloAck", "something else came");
  });
  await t.step("inside a record", async () => {
    await using rig = await start([0], { roundDeadlineMs: 200 });
    const client = await rig.rank(0);
    const { round } = begin(client, 1);
    await rig.channel.expectFrame("host_frame");
    await rig.channel.write(encodeRecord("broadcast", 0, frameOf([[1]]), SALT).subarray(0, 50));
    await failure("the relay", rig.outcome, "reading a record", "took longer than 200 ms");
    await failure("the rank", round, "the relay of host here ended");
  });
});

Deno.test("relay: with nobody at the controller's address the error names it", async () => {
  using nobody = new RawController();
  const { address } = nobody;
  nobody[Symbol.dispose]();
  const error = await failure(
    "the relay",
    Relay.run({
      host: "here",
      ranks: [0],
      worldSize: 1,
      listen: { hostname: "127.0.0.1", port: 0 },
      controller: address,
      salt: SALT,
      frameCeilingBytes: 65_536,
      workers: 0,
      connectDeadlineMs: 100,
      joinDeadlineMs: 5_000,
      roundDeadlineMs: 5_000,
      kernel: (arena) => Promise.resolve(SimdKernel.create(arena)),
      onListening: () => {},
    }, new AbortController().signal),
    `connecting to the controller at ${formatAddress(address)}:`,
    "in 100 ms failed",
  );
  assert(error.name === "TransportError", error.name);
});
