// Who takes part in which round: leaving, coming back, coming late, being late.
import { assert, assertEquals } from "@std/assert";
import type { RankClient } from "../../rank/client.ts";
import { frameOf, RawChannel, RawRank } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, matches, pause, soon } from "./waiting.ts";

/** A round in which each client gives its rank with mass 1; checks mass and mean of `ranks`. */
async function goodRound(clients: readonly RankClient[], ranks = clients.map(({ rank }) => rank)) {
  const values = clients.map(({ rank }) => new Float32Array([rank]));
  const masses = await average(clients, values, clients.map(() => 1));
  expectRound(masses, values, ranks);
}

function expectRound(masses: number[], values: Float32Array[], ranks: readonly number[]) {
  const mean = ranks.reduce((sum, rank) => sum + rank, 0) * Math.fround(1 / ranks.length);
  assertEquals(masses, masses.map(() => ranks.length));
  assertEquals(values.map(([value]) => value), values.map(() => Math.fround(mean)));
}

/** Starts a round of one client, giving its rank with mass 1. */
function begin(client: RankClient) {
  const value = new Float32Array([client.rank]);
  const round = client.allReduce([value], { mass: 1 });
  round.catch(() => {});
  return {
    async end(ranks: readonly number[]) {
      expectRound([(await soon("the round", round)).mass], [value], ranks);
    },
    round,
  };
}

Deno.test("a rank that left comes back between rounds", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await goodRound(clients);
  await clients[1]!.close();
  await goodRound([clients[0]!, clients[2]!]);
  await session.log.has("rank 1 left after 1 rounds");
  for (let time = 0; time < 3; time++) {
    const back = await session.rank(1);
    await session.log.has("ranks 1 of host host-0 are back");
    await goodRound([clients[0]!, back, clients[2]!]);
    await back.close();
    await goodRound([clients[0]!, clients[2]!]);
  }
  await session.finish();
});

Deno.test("a rank that comes back in the middle of a round waits for its end", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 left");
  const first = begin(clients[0]!);
  await session.log.has("round 0: model of 0 goes up");
  const coming = session.rank(1);
  await session.log.has("rank 1 is back at 127.0.0.1", "waits for the end of round 0");
  const second = begin(clients[2]!);
  await first.end([0, 2]);
  await second.end([0, 2]);
  await goodRound([clients[0]!, await soon("rank 1 is let in", coming), clients[2]!]);
  await session.finish();
});

Deno.test("a rank that waits to come back learns that the session ended", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 left");
  const round = begin(clients[0]!);
  await session.log.has("round 0: model of 0 goes up");
  const coming = failure(
    "rank 1",
    session.rank(1),
    "refused rank 1 of 3 because",
    "stopped by the",
  );
  await session.log.has("rank 1 is back");
  session.relays[0]!.stop();
  await coming;
  await failure("rank 0", round.round, "the relay of host host-0 ended: stopped by the test");
  await failure("the relay", session.relays[0]!.outcome, "stopped by the test");
});

Deno.test("a host whose only rank leaves after its frame still closes the round, and ends", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks(0, 1);
  const leaver = await RawRank.join(session.relayOf(2), 2, 3);
  await leaver.sendFrame(frameOf([[2]]));
  await session.log.has("host-1", "round 0: model of 2 goes up");
  leaver.close();
  await session.log.has("rank 2 of host host-1 left in round 0");
  await goodRound(clients, [0, 1, 2]);
  const relay = await soon("the relay ends", session.relays[1]!.outcome);
  assertEquals(relay, { rounds: 1, left: [], lost: [2] });
  await goodRound(clients);
  await session.finish();
});

Deno.test("the only rank of a host comes back while its last frame is in the round", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks(0, 1);
  const leaver = await RawRank.join(session.relayOf(2), 2, 3);
  await leaver.sendFrame(frameOf([[2]]));
  await session.log.has("host-1", "round 0: model of 2 goes up");
  leaver.close();
  await session.log.has("rank 2 of host host-1 left in round 0");
  const coming = session.rank(2);
  await session.log.has("rank 2 is back");
  await goodRound(clients, [0, 1, 2]);
  const back = await soon("rank 2 is let in", coming);
  await goodRound([...clients, back]);
  await goodRound([...clients, back]);
  const { relays } = await session.finish();
  assertEquals(relays[1], { rounds: 3, left: [2], lost: [2] });
});

Deno.test("a relay that comes back in the middle of a round enters the next one", async () => {
  await using session = await Session.start({ hosts: [[0], [1], [2]] });
  const clients = await session.ranks();
  await goodRound(clients);
  session.relays[2]!.stop();
  await failure("rank 2", begin(clients[2]!).round, "the relay of host host-2 ended: stopped");
  await session.log.has("host host-2 is out in round 1 with ranks 2");
  const first = begin(clients[0]!);
  await session.log.has("host-0", "round 1: model of 0 goes up");
  await pause(20);
  await session.startRelay(2);
  const back = await session.rank(2);
  // Its frame is there long before its host takes part.
  const early = begin(back);
  await session.log.has("host-2", "round 0: model of 2 goes up");
  await pause(20);
  const second = begin(clients[1]!);
  await first.end([0, 1]);
  await second.end([0, 1]);
  const third = clients.slice(0, 2).map(begin);
  for (const round of [...third, early]) await round.end([0, 1, 2]);
  await goodRound([clients[0]!, clients[1]!, back]);
  await session.finish();
});

Deno.test("a new relay in the place of one whose frame is in the round waits for the next", async () => {
  await using session = await Session.start({ hosts: [[0], [1], [2]], later: [0, 1, 2] });
  const { address } = session.controller;
  const lost = await RawChannel.join(address, "lost", [0]);
  await lost.sendFrame("host_frame", frameOf([[5]]));
  await pause(20);
  lost.close();
  await session.log.has("host lost is out in round 0", "its frame stays in the round");
  using heir = await RawChannel.join(address, "heir", [0, 1]);
  await heir.sendFrame("host_frame", frameOf([[2]], { weight: 2 }));
  using other = await RawChannel.join(address, "other", [2]);
  await other.sendFrame("host_frame", frameOf([[7]]));
  const first = await other.expectFrame("broadcast");
  assertEquals([first.header.weight, first.values], [2, [[6]]]);
  await other.sendFrame("host_frame", frameOf([[1]]));
  for (const channel of [heir, other]) {
    const { header, values } = await channel.expectFrame("broadcast");
    assertEquals([header.weight, values], [3, [[1]]]);
  }
});

Deno.test("a Hello with the number of a live host is refused, and ends nothing", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]], later: [0] });
  const { address } = session.controller;
  using carrier = await RawChannel.join(address, "carrier", [0, 1]);
  await carrier.sendControl({ type: "rank_exit", rank: 0 });
  await session.log.has("rank 0 of host carrier left");
  using twin = await RawChannel.hello(address, "twin", [0]);
  const said = await twin.refusal();
  assert(
    matches(
      said,
      'Hello of host "twin": its lowest rank 0 has left host "carrier", which is still',
    ),
    said,
  );
  await carrier.sendFrame("host_frame", frameOf([[1]]));
  const [client] = await session.ranks(2);
  await goodRound([client!], [1, 2]);
});

Deno.test("ranks that never connect are given up at the join deadline, and may come later", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]], joinDeadlineMs: 150 });
  const clients = await session.ranks(0, 2);
  await goodRound(clients);
  await session.log.has("rank 1 is out in round 0: it did not connect within 150 ms");
  await goodRound([clients[0]!, await session.rank(1), clients[1]!]);
  const { relays } = await session.finish();
  assertEquals([relays[0]!.rounds, relays[0]!.lost], [2, [1]]);
});

Deno.test("ranks that no relay claims are given up at the join deadline", async () => {
  await using session = await Session.start({
    hosts: [[0, 1], [2]],
    later: [1],
    joinDeadlineMs: 1_500,
  });
  const clients = await session.ranks(0, 1);
  await goodRound(clients);
  await session.log.has("ranks 2: no relay claimed them within 1500 ms");
  await session.startRelay(1);
  await goodRound([...clients, await session.rank(2)]);
  await session.finish();
});

Deno.test("a controller to which no relay comes says so", async () => {
  await using session = await Session.start({ hosts: [[0]], later: [0], joinDeadlineMs: 50 });
  await failure("the controller", session.controller.outcome, "none came within 50 ms");
});

Deno.test("a rank that misses the round's deadline is out, with the reason, and may come back", async () => {
  await using session = await Session.start({
    hosts: [[0, 1], [2]],
    relays: { 0: { roundDeadlineMs: 150 } },
  });
  const clients = await session.ranks();
  await goodRound([clients[0]!, clients[2]!]);
  const text = "it did not deliver within 150 ms of round 0's first frame";
  await session.log.has("rank 1 is out in round 0", text, "the round goes on without it");
  await failure("rank 1", begin(clients[1]!).round, "refused rank 1 of 3 because", text);
  const back = await session.rank(1);
  await goodRound([clients[0]!, back, clients[2]!]);
  await session.finish();
});

Deno.test("a rank that stops inside its frame is out, with the reason", async () => {
  await using session = await Session.start({
    hosts: [[0, 1]],
    relays: { 0: { roundDeadlineMs: 150 } },
  });
  const [client] = await session.ranks(0);
  using late = await RawRank.join(session.relayOf(1), 1, 2);
  await late.write(Uint8Array.from([47, 0, 0, 0, 0xf1]));
  const said = await soon("the reason", late.refusal());
  late.close();
  assert(matches(said, "reading a frame of rank 1: it took longer than 150 ms"), said);
  await goodRound([client!]);
  await session.finish();
});

Deno.test("what an expelled rank still sends does not touch the frame of its return", async () => {
  await using session = await Session.start({
    hosts: [[0, 1]],
    relays: { 0: { roundDeadlineMs: 150 } },
  });
  const [client] = await session.ranks(0);
  const length = 50_000;
  const frame = frameOf([new Array(length).fill(7)]);
  const half = frame.length >> 1;
  using late = await RawRank.join(session.relayOf(1), 1, 2);
  const prefix = new Uint8Array(4);
  new DataView(prefix.buffer).setUint32(0, frame.length, true);
  await late.write(prefix);
  await late.write(frame.subarray(0, half));
  const first = new Float32Array(length).fill(1);
  assertEquals((await client!.allReduce([first], { mass: 1 })).mass, 1);
  // Still connected, it goes on with its frame once that of its successor is there: what was to be the
  // end of the one must not get into the other.
  using back = await soon("rank 1 is let in", RawRank.join(session.relayOf(1), 1, 2));
  await back.sendFrame(frameOf([new Array(length).fill(5)]));
  await pause(50);
  await late.write(frame.subarray(half, half + 10_000)).catch(() => {});
  await pause(50);
  late.close();
  const second = new Float32Array(length).fill(1);
  const round = client!.allReduce([second], { mass: 1 });
  assertEquals((await soon("the round", round)).mass, 2);
  assertEquals(second.findIndex((value) => value !== 3), -1);
  await back.readFrame();
  back.close();
  await session.finish();
});

Deno.test("DeclareDead reaches a relay that still waits", async (t) => {
  await t.step("one of its ranks has delivered: its frame counts", async () => {
    await using session = await Session.start({
      hosts: [[0, 1], [2, 3]],
      roundDeadlineMs: 150,
      relays: { 1: { roundDeadlineMs: 15_000 } },
    });
    const clients = await session.ranks();
    await goodRound(clients.slice(0, 3));
    const text = "the controller declared rank 3 dead: it was too late";
    await session.log.has("host host-1 has not delivered in round 0 after 150 ms");
    await session.log.has("rank 3 is out in round 0", text);
    await failure("rank 3", begin(clients[3]!).round, "refused rank 3 of 4 because", text);
    await goodRound(clients.slice(0, 3));
    await session.finish();
  });
  await t.step("none has: the host is out", async () => {
    await using session = await Session.start({
      hosts: [[0, 1], [2, 3]],
      roundDeadlineMs: 150,
      relays: { 1: { roundDeadlineMs: 15_000 } },
    });
    const clients = await session.ranks();
    await goodRound(clients.slice(0, 2));
    for (const rank of [2, 3]) {
      await failure(
        `rank ${rank}`,
        begin(clients[rank]!).round,
        `the controller declared rank ${rank} dead`,
      );
    }
    const outcome = await soon("the relay ends", session.relays[1]!.outcome);
    assertEquals(outcome, { rounds: 0, left: [], lost: [2, 3] });
    await goodRound(clients.slice(0, 2));
    await session.finish();
  });
});

Deno.test("a lost controller ends its relays, which tell their ranks", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const clients = await session.ranks();
  await goodRound(clients);
  const round = begin(clients[0]!);
  await session.log.has("round 1: model of 0 goes up");
  session.controller.stop();
  const text = "refused us because: the controller ended: stopped by the test";
  await failure("rank 0", round.round, "the relay of host host-0 ended", text);
  for (const relay of session.relays) await failure("a relay", relay.outcome, text);
  await failure("the controller", session.controller.outcome, "stopped by the test");
});

Deno.test("neither silent strangers nor a refused rank hold up the end", async () => {
  await using session = await Session.start({ hosts: [[0]] });
  const strangers = await Promise.all(
    [session.controller.address, session.relays[0]!.address].map((address) =>
      RawChannel.connect(address)
    ),
  );
  const clients = await session.ranks();
  await goodRound(clients);
  const started = Date.now();
  await session.finish();
  assert(Date.now() - started < 5_000, `it took ${Date.now() - started} ms`);
  for (const stranger of strangers) stranger.close();
});

Deno.test("a rank that hangs up while it waits to come back leaves its place free", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 left");
  const first = begin(clients[0]!);
  await session.log.has("round 0: model of 0 goes up");
  await failure("rank 1", session.rank(1, { joinTimeoutMs: 50 }), "rank 1 waits to be let in");
  await session.log.has("rank 1 closed its connection before it was let in");
  const coming = session.rank(1);
  const second = begin(clients[2]!);
  await first.end([0, 2]);
  await second.end([0, 2]);
  await goodRound([clients[0]!, await soon("rank 1 is let in", coming), clients[2]!]);
  const { relays } = await session.finish();
  assertEquals([relays[0]!.left.length, relays[0]!.lost], [3, []]);
});
