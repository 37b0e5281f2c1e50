// Ranks that break a rule: each learns why, the log names it, and the others finish their round with the
// exact divisor.
import { assert, assertEquals } from "@std/assert";
import type { RankClient } from "../../rank/client.ts";
import { encodeHandshake } from "../../wire/handshake.ts";
import { tag64 } from "../../wire/mac.ts";
import { unhex } from "../vectors.ts";
import { frameOf, RawPeer, RawRank } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, matches, soon } from "./waiting.ts";

const OTHER_SALT = unhex("5be1c07d93f2a8460e719d3cb84f2a65");

function handshake(rank: number, worldSize: number, version = 2): Uint8Array {
  return encodeHandshake({ version, rank, worldSize });
}

/** A round of these clients, each giving its own rank; checks what comes of it. */
async function goodRound(clients: readonly RankClient[], also: readonly number[] = []) {
  const values = clients.map(({ rank }) => new Float32Array([rank, 1]));
  const masses = await average(clients, values, clients.map(() => 1));
  const all = [...clients.map(({ rank }) => rank), ...also];
  const mean = all.reduce((sum, rank) => sum + rank, 0) * Math.fround(1 / all.length);
  for (const mass of masses) assertEquals(mass, all.length);
  for (const value of values) {
    assertEquals([...value], [Math.fround(mean), Math.fround(all.length * (1 / all.length))]);
  }
}

Deno.test("strangers at a relay's port are told why, and disturb nobody", async (t) => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = await session.ranks();
  const relay = session.relayOf(0);
  const rows: [name: string, bytes: Uint8Array, reason: string | RegExp][] = [
    [
      "another world size",
      handshake(1, 4),
      /letting in rank 1 at 127\.0\.0\.1:\d+: it says world size 4, this session has 3/,
    ],
    [
      "a rank of another host",
      handshake(2, 3),
      /rank 2 .* not one of host host-0's ranks \(0, 1\)/,
    ],
    ["a rank twice", handshake(1, 3), /letting in rank 1 .*: it is connected already, from 127/],
    ["no rank of any world", handshake(7, 3), "rank 7 of world size 3"],
    ["a huge world", handshake(1, 0xffff_ffff), "rank 1 of world size 4294967295"],
    ["another protocol", handshake(1, 3, 9), "protocol version 9, expected 2 or 3"],
    [
      "garbage",
      new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"),
      "reading a rank's handshake: magic 0x20544547, expected 0xf10d17c0",
    ],
  ];
  for (const [name, bytes, reason] of rows) {
    await t.step(name, async () => {
      using peer = await RawPeer.connect(relay);
      await peer.write(bytes);
      const said = await peer.refusal();
      assert(matches(said, reason), said);
      await session.log.has("warning", reason);
      await goodRound(clients);
    });
  }
  await t.step("half a handshake", async () => {
    using peer = await RawPeer.connect(relay);
    await peer.write(handshake(1, 3).subarray(0, 9));
    await peer.closeWrite();
    assertEquals(await peer.rest(), new Uint8Array(0));
    await session.log.has("a rank's handshake", "the stream ended after 9 of 16 bytes");
  });
  await t.step("no word", async () => {
    using peer = await RawPeer.connect(relay);
    await peer.closeWrite();
    await peer.rest();
    await session.log.has("closed without a handshake");
    await goodRound(clients);
  });
  await t.step("the same, as a client sees it", async () => {
    await failure(
      "a second rank 1",
      session.rank(1),
      /the relay at 127\.0\.0\.1:\d+ refused rank 1 of 3 because: letting in rank 1 .* connected already/,
    );
    await failure(
      "rank 1 of 4",
      session.rank(1, { worldSize: 4 }),
      "refused rank 1 of 4 because",
      "it says world size 4, this session has 3",
    );
    await failure(
      "rank 2 at the wrong relay",
      session.rank(2, { relay }),
      "it is not one of host host-0's ranks (0, 1)",
    );
    await goodRound(clients);
  });
  const { relays } = await session.finish();
  assertEquals(relays.map(({ lost }) => lost), [[], []]);
});

interface Culprit {
  readonly name: string;
  /** What rank 1 sends in place of a good frame of [1, 1]. */
  readonly bytes: () => Uint8Array;
  readonly reason: string | RegExp;
  /** Whether a good frame of it was there before. */
  readonly counts?: boolean;
}

const good = () => frameOf([[1, 1]]);

/** A good frame with one byte changed, its tag left as it is. */
function spoiled(at: number, to: number): Uint8Array {
  const frame = good();
  frame[at < 0 ? frame.length + at : at] = to;
  return frame;
}

/** A good frame with one byte changed and a tag that fits. */
function signed(at: number, to: number): Uint8Array {
  const frame = spoiled(at, to);
  frame.set(
    tag64(unhex("9d1c4be07a52f8360ee5b3476d91c82f"), frame.subarray(0, -8)),
    frame.length - 8,
  );
  return frame;
}

function withLength(blob: Uint8Array, length = blob.length): Uint8Array {
  const bytes = new Uint8Array(4 + blob.length);
  new DataView(bytes.buffer).setUint32(0, length, true);
  bytes.set(blob, 4);
  return bytes;
}

const culprits: Culprit[] = [
  {
    name: "a frame under another salt",
    bytes: () => withLength(frameOf([[1, 1]], { salt: OTHER_SALT })),
    reason: /verifying a round frame: its MAC does not match; the salts/,
  },
  {
    name: "a flipped bit",
    bytes: () => withLength(spoiled(-9, 1)),
    reason: "its MAC does not match",
  },
  {
    name: "a length above the ceiling",
    bytes: () => withLength(good(), 70_000),
    reason: "70000 bytes announced, above the frame ceiling of 65536",
  },
  {
    name: "no frame at all",
    bytes: () => withLength(new Uint8Array(100).fill(0x41)),
    reason: "magic 0x41414141, expected 0xf10d17f1",
  },
  {
    name: "an empty blob",
    bytes: () => withLength(new Uint8Array(0)),
    reason: "it is truncated: its 0 bytes end inside its headers",
  },
  {
    name: "bytes behind the frame",
    bytes: () => withLength(Uint8Array.from([...good(), 0, 0, 0])),
    reason: "50 bytes came, its headers need 47",
  },
  {
    name: "an unknown kind of round",
    bytes: () => withLength(signed(8, 9)),
    reason: "unknown round kind 9, expected 0 or 1",
  },
  {
    name: "a weight that is no number",
    bytes: () => withLength(frameOf([[1, 1]], { weight: NaN })),
    reason: "weight NaN is not finite and non-negative",
  },
  {
    name: "an unknown dtype",
    bytes: () => withLength(signed(17, 7)),
    reason: /folding the frame of rank 1: tensor 0 has dtype 7/,
  },
  {
    name: "fewer bytes than the shape needs",
    bytes: () => withLength(signed(19, 3)),
    reason: "folding the frame of rank 1: tensor 0 of shape [3] needs 12 bytes and carries 8",
  },
  {
    name: "a second frame before the round closed",
    bytes: () => Uint8Array.from([...withLength(good()), ...withLength(good())]),
    reason: "rank 1 sent a second frame before the round of its first one was over",
    counts: true,
  },
  {
    name: "another shape",
    bytes: () => withLength(frameOf([[1, 1, 1]])),
    reason:
      "folding the frame of rank 1 with that of rank 0: tensor 0 has shape [3], expected [2]; " +
      "the round goes on without rank 1",
  },
  {
    name: "another order of dims",
    bytes: () => withLength(frameOf([[1, 1]], { shapes: [[2, 1]] })),
    reason: "tensor 0 has shape [2, 1], expected [2]",
  },
  {
    name: "more tensors",
    bytes: () => withLength(frameOf([[1, 1], [1]])),
    reason: "it has 2 tensors, expected 1",
  },
  {
    name: "another kind of round",
    bytes: () => withLength(frameOf([[1, 1]], { kind: "control" })),
    reason: "it is a control frame, expected model",
  },
];

for (const { name, bytes, reason, counts = false } of culprits) {
  Deno.test(`a rank that sends ${name} is out, the others finish`, async () => {
    await using session = await Session.start({
      hosts: [[0, 1, 2], [3]],
      frameCeilingBytes: 65_536,
    });
    const clients = await session.ranks(0, 2, 3);
    using culprit = await RawRank.join(session.relayOf(1), 1, 4);
    await culprit.write(bytes());
    const [said] = await Promise.all([
      soon("the reason", culprit.refusal()).finally(() => culprit.close()),
      goodRound(clients, counts ? [1] : []),
    ]);
    assert(matches(said, reason), said);
    await session.log.has("rank 1 is out in round 0", reason);
    await goodRound(clients);
    const { relays } = await session.finish();
    assertEquals(relays[0]!.lost, [1]);
    assertEquals(relays[0]!.rounds, 2);
  });
}

Deno.test("a rank that closes inside a frame is out, the others finish", async (t) => {
  for (const cut of [1, 3, 4, 20, 40, 50]) {
    await t.step(`after ${cut} bytes`, async () => {
      await using session = await Session.start({ hosts: [[0, 1, 2], [3]] });
      const clients = await session.ranks(0, 2, 3);
      using culprit = await RawRank.join(session.relayOf(1), 1, 4);
      await culprit.write(withLength(good()).subarray(0, cut));
      culprit.close();
      await goodRound(clients);
      const where = cut < 4 ? `after ${cut} of 4 bytes` : `after ${cut - 4} of 47 bytes`;
      await session.log.has("rank 1 is out in round 0", where, "the round goes on without it");
      await session.finish();
    });
  }
});

Deno.test("a rank that closes with its frame in the round: it counts", async () => {
  await using session = await Session.start({ hosts: [[0, 1, 2], [3]] });
  const clients = await session.ranks(0, 2, 3);
  const leaver = await RawRank.join(session.relayOf(1), 1, 4);
  await leaver.sendFrame(good());
  leaver.close();
  await session.log.has("rank 1 is out in round 0", "its frame stays in the round");
  await goodRound(clients, [1]);
  await goodRound(clients);
  await session.finish();
});

Deno.test("clients under another salt or above the ceiling say so", async (t) => {
  await t.step("another salt", async () => {
    await using session = await Session.start({ hosts: [[0, 1], [2]] });
    const clients = await session.ranks(0, 2);
    const stranger = await session.rank(1, { salt: OTHER_SALT });
    const [error] = await Promise.all([
      failure(
        "the round of rank 1",
        stranger.allReduce([new Float32Array(2)], { mass: 1 }),
        /the relay at 127\.0\.0\.1:\d+ refused rank 1 of 3/,
        "the salts of the two processes differ",
      ),
      goodRound(clients),
    ]);
    assertEquals(
      await failure("a later round", stranger.allReduce([new Float32Array(2)], { mass: 1 })),
      error,
    );
    await session.finish();
  });
  await t.step("a frame above the ceiling, larger than what sockets hold", async () => {
    await using session = await Session.start({ hosts: [[0, 1], [2]], frameCeilingBytes: 4096 });
    const clients = await session.ranks(0, 2);
    const large = await session.rank(1);
    await Promise.all([
      failure(
        "the round of rank 1",
        large.allReduce([new Float32Array(4_000_000)], { mass: 1 }),
        "refused rank 1 of 3 because: reading a length prefix: 16000039 bytes announced, above the " +
          "frame ceiling of 4096",
      ),
      goodRound(clients),
    ]);
    await session.log.has("rank 1 is out in round 0", "above the frame ceiling of 4096");
    await session.finish();
  });
});

Deno.test("of several schemas on one host the one of most ranks stays", async (t) => {
  const round = async (shapes: number[], stays: number[]) => {
    await using session = await Session.start({ hosts: [shapes.map((_, rank) => rank)] });
    const clients = await session.ranks();
    const values = shapes.map((length, rank) => new Float32Array(length).fill(rank));
    const outcomes = await soon(
      "the round",
      Promise.allSettled(
        clients.map((client, rank) => client.allReduce([values[rank]!], { mass: 1 })),
      ),
    );
    const mean = stays.reduce((sum, rank) => sum + rank, 0) / stays.length;
    outcomes.forEach((outcome, rank) => {
      if (stays.includes(rank)) {
        assert(outcome.status === "fulfilled", `rank ${rank} failed`);
        assertEquals(
          (outcome as PromiseFulfilledResult<{ mass: number }>).value.mass,
          stays.length,
        );
        assertEquals(values[rank]![0], Math.fround(mean));
      } else {
        assert(outcome.status === "rejected", `rank ${rank} went on`);
        const { message } = (outcome as PromiseRejectedResult).reason;
        const wanted =
          `folding the frame of rank ${rank} with that of rank ${stays[0]}: tensor 0 has ` +
          `shape [${shapes[rank]}], expected [${shapes[stays[0]!]}]`;
        assert(message.includes(wanted), message);
        assertEquals(values[rank]![0], rank);
      }
    });
    await session.finish();
  };
  await t.step("the odd one has the lowest rank", () => round([3, 2, 2], [1, 2]));
  await t.step("the odd one has the highest rank", () => round([2, 2, 3], [0, 1]));
  await t.step("a tie: the lowest rank's stays", () => round([2, 3], [0]));
  await t.step("three schemas", () => round([2, 4, 3, 4], [1, 3]));
});

Deno.test("an odd frame whose rank has left already is dropped, and nothing else", async () => {
  await using session = await Session.start({ hosts: [[0, 1, 2], [3]] });
  const clients = await session.ranks(0, 2, 3);
  const odd = await RawRank.join(session.relayOf(1), 1, 4);
  await odd.sendFrame(frameOf([[1, 1, 1]]));
  odd.close();
  await session.log.has("rank 1 is out in round 0", "its frame stays in the round");
  // Its next connection is not to blame.
  const coming = session.rank(1);
  await session.log.has("rank 1 is back");
  await goodRound(clients);
  await session.log.has("warning", "folding the frame of rank 1 with that of rank 0: tensor 0 has");
  await goodRound([clients[0]!, await soon("rank 1 is let in", coming), clients[1]!, clients[2]!]);
  const { controller } = await session.finish();
  assertEquals(controller.lost, []);
});
