// A world below its full size: who may be missing, who is waited for, who comes back.
import { assertEquals } from "@std/assert";
import type { RankClient } from "../../rank/client.ts";
import { frameOf, RawRank } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, PATIENCE_MS, soon } from "./waiting.ts";

function begin(client: RankClient, value: number) {
  const values = Float32Array.of(value);
  const round = client.allReduce([values], { mass: 1 });
  round.catch(() => {});
  return { values, round };
}

async function ends(
  rounds: readonly ReturnType<typeof begin>[],
  mass: number,
  mean: number,
): Promise<void> {
  const results = await soon("the round", Promise.all(rounds.map(({ round }) => round)));
  assertEquals(results.map((result) => result.mass), results.map(() => mass));
  assertEquals(rounds.map(({ values }) => values[0]), rounds.map(() => Math.fround(mean)));
}

Deno.test("min ranks: a world of one is the identity, bit for bit", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const [client, other] = await session.ranks();
  await other!.close();
  await session.log.has("host host-1 is done");
  // Whatever the mass, multiplying and dividing by it gives the same bits only for powers of two.
  const bits = Uint32Array.of(0x3f9e0651, 0x80000000, 0x7f7fffff >>> 1, 0x00000001, 0xbeaaaaab);
  const wanted = new Float32Array(bits.buffer.slice(0));
  for (const mass of [1, 0.5, 4]) {
    const values = wanted.slice();
    const { mass: got } = await soon("the round", client!.allReduce([values], { mass }));
    assertEquals(got, mass);
    // -0 comes out of a sum that starts from +0.0 as +0.
    const expected = wanted.slice();
    expected[1] = 0;
    if (mass === 0.5) expected[3] = 0;
    assertEquals(new Uint32Array(values.buffer), new Uint32Array(expected.buffer), `mass ${mass}`);
  }
  await session.finish();
});

Deno.test("min ranks: a round waits for a relay that comes back, and has its frame", async () => {
  await using session = await Session.start({
    hosts: [[0], [1], [2]],
    controller: { minRanks: 3, returnDeadlineMs: PATIENCE_MS },
  });
  const clients = await session.ranks();
  await average(clients, [1, 2, 3].map((value) => Float32Array.of(value)), [1, 1, 1]);
  session.relays[0]!.stop();
  await failure("the relay", session.relays[0]!.outcome, "stopped");
  await session.log.has("host host-0 is out in round 1");
  const rounds = [begin(clients[1]!, 5), begin(clients[2]!, 6)];
  await session.log.has("the frame of host host-1 is in round 1");
  await session.log.has("the frame of host host-2 is in round 1");
  await session.startRelay(0);
  const back = await session.rank(0);
  await ends([...rounds, begin(back, 1)], 3, 4);
  await session.finish();
});

Deno.test("min ranks: a rank that comes back to a relay whose frame is up lets the round close", async () => {
  await using session = await Session.start({
    hosts: [[0, 1]],
    controller: { minRanks: 2, returnDeadlineMs: PATIENCE_MS },
  });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 of host host-0 left in round 0");
  const round = begin(clients[0]!, 5);
  await session.log.has("the frame of host host-0 is in round 0");
  const back = await session.rank(1);
  await ends([round], 1, 5);
  await ends([begin(clients[0]!, 1), begin(back, 2)], 2, 1.5);
  await session.finish();
});

Deno.test("min ranks: too few for too long is an error that says so", async () => {
  await using session = await Session.start({
    hosts: [[0], [1]],
    controller: { minRanks: 2, returnDeadlineMs: 200 },
  });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("host host-1 is done");
  const text =
    "waiting in round 0 for at least 2 ranks: 1 are there, and no more came within 200 ms";
  const controller = failure("the controller", session.controller.outcome, text);
  await failure("rank 0", begin(clients[0]!, 5).round, text);
  await controller;
});

Deno.test("min ranks: ranks that all leave of their own accord end the session well", async () => {
  await using session = await Session.start({
    hosts: [[0], [1]],
    controller: { minRanks: 2, returnDeadlineMs: PATIENCE_MS },
    relays: { 0: { returnDeadlineMs: PATIENCE_MS }, 1: { returnDeadlineMs: PATIENCE_MS } },
  });
  const clients = await session.ranks();
  await average(clients, [1, 2].map((value) => Float32Array.of(value)), [1, 1]);
  const { controller } = await session.finish();
  assertEquals(controller.left.toSorted(), [0, 1]);
});

Deno.test("returns: a relay whose last rank died waits for it", async () => {
  await using session = await Session.start({
    hosts: [[0]],
    controller: { returnDeadlineMs: PATIENCE_MS },
    relays: { 0: { returnDeadlineMs: PATIENCE_MS } },
  });
  const dying = await RawRank.join(session.relayOf(0), 0, 1);
  await dying.sendFrame(frameOf([[1]]));
  await dying.readFrame();
  await dying.write(Uint8Array.of(40, 0, 0, 0, 1, 2, 3));
  dying.close();
  await session.log.has("rank 0 is out in round 1", "the stream ended");
  const back = await session.rank(0);
  await ends([begin(back, 7)], 1, 7);
  await session.finish();
});

Deno.test("returns: a relay that comes to a session under way waits for none of its ranks", async () => {
  await using session = await Session.start({ hosts: [[0], [1, 2]] });
  const clients = await session.ranks();
  await average(clients, [1, 2, 3].map((value) => Float32Array.of(value)), [1, 1, 1]);
  session.relays[1]!.stop();
  await failure("the relay", session.relays[1]!.outcome, "stopped");
  await session.log.has("host host-1 is out in round 1");
  await session.startRelay(1);
  await session.log.has("rank 1 of host host-1 left in round 1");
  await session.log.has("rank 2 of host host-1 left in round 1");
  await ends([begin(clients[0]!, 4)], 1, 4);
  const back = await session.rank(2);
  await session.log.has("ranks 2 of host host-1 are back");
  await ends([begin(clients[0]!, 4), begin(back, 8)], 2, 6);
  await session.finish();
});

Deno.test("returns: a rank is quicker back than its old connection is gone, and only one is let in", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const other = await session.rank(0);
  const old = await RawRank.join(session.relayOf(1), 1, 2);
  const coming = session.rank(1);
  coming.catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 100));
  old.close();
  const back = await soon("rank 1 is let in", coming);
  await failure("a second claim", session.rank(1), "it is connected already");
  await ends([begin(other, 1), begin(back, 3)], 2, 2);
  await session.finish();
});
