// Folding ahead of verification: the same bits, and nothing of a frame that does not turn out well.
import { assert, assertEquals } from "@std/assert";
import { encodeHandshake, PROTOCOL_F32 } from "../../wire/handshake.ts";
import { encodeFrame } from "../../wire/round_frame.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { prefixed, RawPeer } from "./raw.ts";
import { Session } from "./session.ts";
import { pause } from "./waiting.ts";

const LENGTH = 700_003;

function values(rank: number): Float32Array {
  return Float32Array.from({ length: LENGTH }, (_, i) => Math.fround(Math.sin(i + rank * 1.7)));
}

function mean(ranks: readonly number[]): Float32Array {
  const all = ranks.map(values);
  const factor = Math.fround(1 / ranks.length);
  return Float32Array.from({ length: LENGTH }, (_, i) => {
    let sum = 0;
    for (const list of all) sum = Math.fround(sum + list[i]!);
    return sum * factor;
  });
}

function sameBits(a: Float32Array, b: Float32Array): boolean {
  const x = new Uint32Array(a.buffer);
  const y = new Uint32Array(b.buffer);
  return x.length === y.length && x.every((bits, i) => bits === y[i]);
}

/** A frame of one rank, with a tag that is right or not. */
function frameOf(rank: number, authentic: boolean): Uint8Array {
  const frame = encodeFrame("model", 1, [{ shape: [LENGTH], values: values(rank) }], SALT);
  if (!authentic) frame[frame.length - 1]! ^= 1;
  return prefixed(frame);
}

async function rawRank(session: Session, rank: number, worldSize: number): Promise<RawPeer> {
  const peer = await RawPeer.connect(session.relayOf(rank));
  await peer.write(encodeHandshake({ version: PROTOCOL_F32, rank, worldSize }));
  await peer.read(8);
  return peer;
}

for (const workers of [0, 2]) {
  Deno.test(`eager fold, ${workers} threads: a frame that proves false at its end leaves no trace`, async () => {
    await using session = await Session.start({ hosts: [[0, 1, 2]], workers });
    const clients = await session.ranks(0, 2);
    using peer = await rawRank(session, 1, 3);
    const given = clients.map(({ rank }) => values(rank));
    const rounds = clients.map((client, i) => client.allReduce([given[i]!], { mass: 1 }));
    // All three arrive side by side, so that the sum has run over most of them when the tag comes.
    const frame = frameOf(1, false);
    for (let at = 0; at < frame.length; at += 300_000) {
      await peer.write(frame.subarray(at, at + 300_000));
      await pause(5);
    }
    assert((await peer.refusal()).includes("MAC does not match"));
    for (const round of rounds) assertEquals((await round).mass, 2);
    for (const list of given) assert(sameBits(list, mean([0, 2])));
  });

  Deno.test(`eager fold, ${workers} threads: a rank that dies in the middle leaves no trace`, async () => {
    await using session = await Session.start({ hosts: [[0, 1, 2], [3]], workers });
    const clients = await session.ranks(0, 2, 3);
    const peer = await rawRank(session, 1, 4);
    const given = clients.map(({ rank }) => values(rank));
    const rounds = clients.map((client, i) => client.allReduce([given[i]!], { mass: 1 }));
    const frame = frameOf(1, true);
    await peer.write(frame.subarray(0, 2_000_000));
    await pause(50);
    peer[Symbol.dispose]();
    for (const round of rounds) assertEquals((await round).mass, 3);
    const host = [0, 2].map(values);
    const third = Math.fround(1 / 3);
    const wanted = values(3).map((value, i) =>
      Math.fround(Math.fround(host[0]![i]! + host[1]![i]!) + value) * third
    );
    for (const list of given) assert(sameBits(list, wanted));
  });

  Deno.test(`eager fold, ${workers} threads: zeroed values, another schema, and a good round after`, async () => {
    await using session = await Session.start({
      hosts: [[0, 1, 2]],
      workers,
      relays: { 0: { nonfinite: "zero" } },
    });
    const clients = await session.ranks();
    const given = clients.map(({ rank }) => values(rank));
    given[1]![LENGTH - 1] = NaN;
    const wanted = mean([0, 1, 2]);
    const [a, , c] = [0, 1, 2].map((rank) => values(rank)[LENGTH - 1]!);
    wanted[LENGTH - 1] = Math.fround(Math.fround(a! + 0) + c!) * Math.fround(1 / 3);
    await Promise.all(clients.map((client, i) => client.allReduce([given[i]!], { mass: 1 })));
    for (const list of given) assert(sameBits(list, wanted));
    const odd = clients.map(({ rank }) =>
      new Float32Array(rank === 2 ? LENGTH + 1 : LENGTH).fill(2)
    );
    const outcomes = await Promise.allSettled(
      clients.map((client, i) => client.allReduce([odd[i]!], { mass: 1 })),
    );
    assertEquals(outcomes.map(({ status }) => status), ["fulfilled", "fulfilled", "rejected"]);
    const last = clients.slice(0, 2);
    const again = last.map(({ rank }) => values(rank));
    await Promise.all(last.map((client, i) => client.allReduce([again[i]!], { mass: 1 })));
    for (const list of again) assert(sameBits(list, mean([0, 1])));
  });
}
