// Protocol 3: values travel as bf16, are summed in f32, and are rounded once up and once down.
import { assert, assertEquals } from "@std/assert";
import { plainConversions } from "../../kernels/convert.ts";
import { encodeHandshake, HANDSHAKE_BYTES, PROTOCOL_BF16 } from "../../wire/handshake.ts";
import { encodeFrameHeaders, layoutFrame, sealFrame } from "../../wire/round_frame.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { openFrame, prefixed, RawPeer } from "./raw.ts";
import { average, Session } from "./session.ts";
import { failure, matches, soon } from "./waiting.ts";

/** f32 values rounded to bf16 and widened again. */
function rounded(values: Float32Array): Float32Array {
  const narrow = new Uint8Array(values.length * 2);
  const wide = new Float32Array(values.length);
  plainConversions.scaleToBf16(narrow, new Uint8Array(Float32Array.from(values).buffer), 1);
  plainConversions.bf16ToF32(new Uint8Array(wide.buffer), narrow);
  return wide;
}

/** What the ranks of these hosts must end with: rounded once up, summed in f32 host by host. */
function expected(hosts: number[][], values: Float32Array[], masses: number[]): Float32Array {
  const length = values[0]!.length;
  const sum = (terms: Float32Array[]) => {
    const out = new Float32Array(length);
    for (const term of terms) term.forEach((value, i) => out[i] = out[i]! + value);
    return out;
  };
  const total = sum(
    hosts.map((ranks) =>
      sum(ranks.map((rank) => rounded(values[rank]!.map((value) => value * masses[rank]!))))
    ),
  );
  const factor = Math.fround(1 / masses.reduce((a, b) => a + b, 0));
  return rounded(total.map((value) => value * factor));
}

function values(rank: number, length: number): Float32Array {
  return Float32Array.from({ length }, (_, i) => Math.sin(i * 12.9898 + rank * 78.233) * 3);
}

Deno.test("bf16: one rounding up, f32 sums at both tiers, one rounding down, the same bits for all", async () => {
  const hosts = [[0, 1, 2], [3], [4, 5]];
  await using session = await Session.start({ hosts });
  const clients = await Promise.all(
    hosts.flat().map((rank) => session.rank(rank, { wire: "bf16" })),
  );
  const masses = [1, 2, 0.5, 3, 7, 1];
  // Past one piece of the fold, and at no alignment.
  for (const length of [1, 5, 70_001]) {
    const given = clients.map(({ rank }) => values(rank, length));
    const wanted = expected(hosts, given.map((list) => list.slice()), masses);
    const accepted = await average(clients, given, masses);
    for (const mass of accepted) assertEquals(mass, 14.5);
    for (const list of given) assertEquals(list, wanted);
  }
});

Deno.test("bf16: Control rounds stay f32, and so do results where one rank is plain", async () => {
  await using session = await Session.start({ hosts: [[0, 1], [2]] });
  const clients = [
    await session.rank(0, { wire: "bf16" }),
    await session.rank(1, { wire: "bf16" }),
    await session.rank(2),
  ];
  const counts = await Promise.all(
    clients.map((client) => client.gatherCounts(1001 + client.rank)),
  );
  for (const list of counts) assertEquals([...list], [1001, 1002, 1003]);
  const given = clients.map(({ rank }) => values(rank, 300));
  const hosts = [rounded(given[0]!), rounded(given[1]!), given[2]!];
  const third = Math.fround(1 / 3);
  const wanted = hosts[0]!.map((value, i) =>
    Math.fround(Math.fround(Math.fround(value + hosts[1]![i]!) + hosts[2]![i]!) * third)
  );
  await average(clients, given, [1, 1, 1]);
  for (const list of given) assertEquals(list, wanted);
});

Deno.test("bf16: a plain host whose ranks have left still gets its round's result, in f32", async () => {
  await using session = await Session.start({ hosts: [[0], [1]] });
  const narrow = await session.rank(0, { wire: "bf16" });
  const plain = await session.rank(1);
  const values = Float32Array.of(0.1, 1 / 3, 7);
  const lost = plain.allReduce([values.slice()], { mass: 1 }).catch((error: Error) => error);
  await session.log.has("goes up with mass 1", "model of 1");
  await plain.close();
  assert(await soon("the plain rank's end", lost) instanceof Error);
  await session.log.has("rank 1 of host", "left in round 0");
  const own = Float32Array.of(0.5, 0.25, 1);
  const result = await soon("the round", narrow.allReduce([own], { mass: 1 }));
  assertEquals(result.mass, 2);
  assertEquals(own, values.map((value, i) => Math.fround(value + [0.5, 0.25, 1][i]!) * 0.5));
  // The relay of the plain rank has nothing more to wait for.
  const { left, lost: died } = await soon("its relay", session.relays[1]!.outcome);
  assertEquals([left, died], [[], [1]]);
  await session.finish();
});

Deno.test("bf16: left-out zeros are zeros", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  const client = await session.rank(0, { wire: "bf16" });
  using peer = await RawPeer.connect(session.relayOf(1));
  await peer.write(encodeHandshake({ version: PROTOCOL_BF16, rank: 1, worldSize: 2 }));
  await peer.read(8);
  const layout = layoutFrame([{ dtype: 1, shape: [3], nbytes: 0 }, { dtype: 1, shape: [1] }]);
  const frame = new Uint8Array(layout.length);
  const header = { ...layout, weight: 1 };
  encodeFrameHeaders(frame, header);
  frame.set([0x80, 0x3f], header.tensors[1]!.at);
  sealFrame(frame, header, SALT);
  const own = [Float32Array.from([1, 2, 3]), Float32Array.from([5])];
  const round = client.allReduce(own, { mass: 1 });
  await peer.write(prefixed(frame));
  assertEquals((await round).mass, 2);
  assertEquals(own.map((list) => [...list]), [[0.5, 1, 1.5], [3]]);
});

Deno.test("bf16: a plain rank may not send it, and is told so", async () => {
  await using session = await Session.start({ hosts: [[0]] });
  using peer = await RawPeer.connect(session.relayOf(0));
  await peer.write(encodeHandshake({ version: 2, rank: 0, worldSize: 1 }));
  await peer.read(8);
  const header = { ...layoutFrame([{ dtype: 1, shape: [2] }]), weight: 1 };
  const frame = new Uint8Array(header.length);
  encodeFrameHeaders(frame, header);
  sealFrame(frame, header, SALT);
  await peer.write(prefixed(frame));
  const said = await peer.refusal();
  assert(matches(said, /rank 0: tensor 0 has dtype 1, .* expected 0 \(f32\)/), said);
});

Deno.test("bf16: a relay that speaks protocol 2 only is named as the reason", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const serving = (async () => {
    const conn = await listener.accept();
    await conn.read(new Uint8Array(HANDSHAKE_BYTES));
    conn.close();
  })();
  const { port } = listener.addr;
  await using session = await Session.start({ hosts: [[0]] });
  await failure(
    "a rank asks for bf16",
    session.rank(0, { relay: `127.0.0.1:${port}`, wire: "bf16" }),
    /closed the connection at the handshake of rank 0 of 1.*cannot take bf16 \(protocol 3\)/,
  );
  await serving;
  listener.close();
});

Deno.test("bf16: the result that a plain rank gets is f32 on the wire", async () => {
  await using session = await Session.start({ hosts: [[0, 1]] });
  using peer = await RawPeer.connect(session.relayOf(0));
  await peer.write(encodeHandshake({ version: 2, rank: 0, worldSize: 2 }));
  await peer.read(8);
  using other = await RawPeer.connect(session.relayOf(1));
  await other.write(encodeHandshake({ version: 2, rank: 1, worldSize: 2 }));
  await other.read(8);
  const header = { ...layoutFrame([{ dtype: 0, shape: [1] }]), weight: 1 };
  const frame = new Uint8Array(header.length);
  encodeFrameHeaders(frame, header);
  sealFrame(frame, header, SALT);
  await peer.write(prefixed(frame));
  await other.write(prefixed(frame));
  const [length] = new Uint32Array((await peer.read(4)).buffer);
  const result = openFrame(await peer.read(length!));
  assertEquals(result.header.tensors[0]!.dtype, 0);
  assertEquals(result.header.weight, 2);
});
