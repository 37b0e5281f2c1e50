// A rank that comes late gets the consensus first, and holds nobody up.
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { RankClient } from "../../rank/client.ts";
import { CATCH_UP, decodeCatchUp, encodeCatchUp } from "../../wire/catch_up.ts";
import { WireError } from "../../wire/errors.ts";
import { encodeHandshake, PROTOCOL_F32 } from "../../wire/handshake.ts";
import { SALT } from "../vectors.ts";
import { eachCut, eachFlip, refused, tryDecode } from "../wire/torture.ts";
import { frameOf, prefixed, RawPeer } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, soon } from "./waiting.ts";

/** Rank 0 of a session of two, after rank 1 has left and a round without it that was no Model round. */
async function aloneAfterCounts(session: Session): Promise<RankClient> {
  const [stays, leaves] = await session.ranks();
  await leaves!.close();
  await session.log.has("rank 1 left");
  await soon("the counts", stays!.gatherCounts(5));
  return stays!;
}

const one = (...list: number[]) => [Float32Array.from(list)];

Deno.test("catch up: before the first round there is nothing to catch up with", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const values = one(7);
  const early = await session.rank(0, { catchUp: values });
  assertEquals([early.consensus, values], [undefined, one(7)]);
  const other = await session.rank(1);
  assertEquals(await average([early, other], [...values, ...one(3)], [1, 1]), [2, 2]);
  await session.finish();
});

Deno.test("catch up: a rank that comes back has the bits of the others before its first round", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 left");
  const rest = [clients[0]!, clients[2]!];
  const values = [...one(0.1, 0.7), ...one(0.3, -5)];
  await average(rest, values, [1, 2]);
  for (const wire of ["f32", "bf16"] as const) {
    const mine = one(0, 0);
    const back = await session.rank(1, { catchUp: mine, wire });
    assertEquals([back.consensus?.mass, mine[0]], [3, values[0]!]);
    await back.close();
    await session.log.has("rank 1 left after 1 rounds");
  }
  await session.finish();
});

Deno.test("catch up: in the middle of a round the joiner gets that round's result, and nobody waits", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  await clients[1]!.close();
  await session.log.has("rank 1 left");
  const given = one(4);
  const first = clients[0]!.allReduce(given, { mass: 1 });
  await session.log.has("round 0: model of 0 goes up");
  const mine = one(0);
  const coming = session.rank(1, { catchUp: mine });
  await session.log.has("rank 1 is back", "waits for the end of round 0");
  await soon("the round", clients[2]!.allReduce(one(8), { mass: 1 }));
  await soon("the round", first);
  const back = await soon("rank 1 is let in", coming);
  assertEquals([back.consensus, mine], [{ rounds: 1, mass: 2 }, one(6)]);
  await average([...clients.filter((_, i) => i !== 1), back], [1, 2, 3].flatMap((v) => one(v)), [
    1,
    1,
    1,
  ]);
  await session.finish();
});

Deno.test("catch up: after a Control round the joiner waits for the next Model round", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const [stays, leaves] = await session.ranks();
  await average([stays!, leaves!], [...one(1), ...one(3)], [1, 1]);
  await leaves!.close();
  await session.log.has("rank 1 left");
  await soon("the counts", stays!.gatherCounts(5));
  const mine = one(0);
  const coming = session.rank(1, { catchUp: mine });
  await session.log.has("rank 1 is back");
  // It must not hold the others up.
  const values = one(9);
  assertEquals((await soon("the round", stays!.allReduce(values, { mass: 1 }))).mass, 1);
  const back = await soon("rank 1 is let in", coming);
  assertEquals([back.consensus?.mass, mine], [1, one(9)]);
  await session.finish();
});

Deno.test("catch up: where no Model round ends, the joiner is turned away in time", async () => {
  const relays = { 0: { joinDeadlineMs: 400 } };
  await using session = await Session.start({ hosts: [[0, 1]], relays });
  const stays = await aloneAfterCounts(session);
  const text = "no Model round up to round 1 had a result within 400 ms";
  await failure("rank 1", session.rank(1, { catchUp: one(0) }), text);
  // Its place is free again.
  const back = await session.rank(1);
  await average([stays, back], [...one(1), ...one(3)], [1, 1]);
  await session.finish();
});

Deno.test("catch up: who sends a frame instead of waiting loses its connection, not its place", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const stays = await aloneAfterCounts(session);
  using hasty = await RawPeer.connect(session.relayOf(1));
  await hasty.write(encodeHandshake({ version: PROTOCOL_F32 | CATCH_UP, rank: 1, worldSize: 2 }));
  await hasty.write(prefixed(frameOf([[1]])));
  const reason = await hasty.refusal();
  assertStringIncludes(reason, "it asks for the consensus, and sent a frame before it had it");
  const back = await session.rank(1);
  await average([stays, back], [...one(1), ...one(3)], [1, 1]);
  await session.finish();
});

Deno.test("catch up: a relay that has no result says so, and lets the rank in without", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const [stays, leaves] = await session.ranks();
  await average([stays!, leaves!], [...one(1), ...one(3)], [1, 1]);
  session.relays[1]!.stop();
  await failure("the relay", session.relays[1]!.outcome, "stopped");
  await session.log.has("host host-1 is out in round 1");
  await session.startRelay(1);
  await session.log.has("rank 1 of host host-1 left in round 1");
  const text = "1 rounds have been, and this relay took part in none whose result it has";
  await failure("rank 1", session.rank(1, { catchUp: one(0) }), text);
  const back = await session.rank(1);
  await average([stays!, back], [...one(1), ...one(3)], [1, 1]);
  await session.finish();
});

Deno.test("catch up: tensors of other shapes are told by name", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const [stays, leaves] = await session.ranks();
  await average([stays!, leaves!], [...one(1), ...one(3)], [1, 1]);
  await leaves!.close();
  await session.log.has("rank 1 left");
  const text = "tensor 0 has shape [1], expected [2]";
  await failure("rank 1", session.rank(1, { catchUp: one(0, 0) }), text);
  await session.finish();
});

Deno.test("catch up: what stands in front of the frame is cut, changed or too long", () => {
  const header = { rounds: 300, length: 77 };
  const bytes = encodeCatchUp(header, SALT);
  assertEquals(decodeCatchUp(bytes, SALT, 77), header);
  eachCut(bytes, (cut) => {
    refused(() => decodeCatchUp(cut, SALT, 77), `cut at ${cut.length}`, "truncated");
  });
  eachFlip(bytes, (flipped, bit) => {
    assertEquals(tryDecode(() => decodeCatchUp(flipped, SALT, 77)), undefined, `bit ${bit}`);
  });
  const error = refused(() => decodeCatchUp(bytes, SALT, 76), "too long", "ceiling");
  assertEquals(error === undefined || (error as unknown) instanceof WireError, true);
});
