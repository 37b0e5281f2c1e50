// The outbound side as a table of events: queues, drops, back-off, snapshots.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { DeltaBus, MAX_QUEUE } from "../../controller/delta/bus.ts";
import { DeltaEngine, type Fragment, UnpublishableError } from "../../controller/delta/engine.ts";
import { decodeDwe, openDwe } from "../../wire/dwe.ts";
import { parseTag } from "../../delta/session.ts";
import { FLEET, KEYS, nonceOf, plain, SID, Source } from "./fragments.ts";

const A = "127.0.0.1:1";
const B = "127.0.0.1:2";

function bus(addresses = [A, B], maxQueueBytes?: number): DeltaBus {
  return new DeltaBus(addresses, {
    random: () => 1,
    ...(maxQueueBytes === undefined ? {} : { maxQueueBytes }),
  });
}

function fragment(n: number): Fragment {
  return { sessionId: `s${n}`, bytes: plain(n, [], { session: `s${n}` }) };
}

/** Writes everything that waits for a peer. */
function drain(bus: DeltaBus, address: string): string[] {
  const sessions: string[] = [];
  for (let head = bus.head(address, FLEET); head !== undefined; head = bus.head(address, FLEET)) {
    sessions.push(head.sessionId);
    bus.sent(address, head);
  }
  return sessions;
}

Deno.test("fragments wait for every peer, in order, connected or not", () => {
  const out = bus();
  for (let n = 1; n <= 3; n++) out.offer(fragment(n));
  assertEquals(drain(out, A), ["s1", "s2", "s3"]);
  assertEquals(out.head(A, FLEET), undefined);
  out.offer(fragment(4));
  assertEquals(drain(out, B), ["s1", "s2", "s3", "s4"]);
  const { queued, sent, received, applied, rejected, lastSession, lastError } = out.telemetry;
  assertEquals([queued, sent, received, applied, rejected], [8, 7, 0, 0, 0]);
  assertEquals([lastSession, lastError], ["s4", undefined]);
});

Deno.test("a full queue drops what does not fit, and says so", () => {
  const out = bus();
  for (let n = 0; n < MAX_QUEUE; n++) {
    out.offer(fragment(n));
    if (n % 2 === 0) drain(out, B);
  }
  assertEquals(out.telemetry.lastError, undefined);
  out.offer(fragment(999));
  const [a, b] = out.peers;
  assertEquals([a!.waiting, a!.dropped, b!.dropped], [MAX_QUEUE, 1, 0]);
  assertEquals(out.telemetry.queued, 2 * MAX_QUEUE + 1);
  assert(out.telemetry.lastError!.includes(`full (${MAX_QUEUE} wait)`), out.telemetry.lastError);
  assert(out.telemetry.lastError!.includes("s999"));
  assertEquals(drain(out, A).at(-1), `s${MAX_QUEUE - 1}`);
  out.offer(fragment(1_000));
  assertEquals(drain(out, A), ["s1000"]);
});

Deno.test("bytes that wait are bounded for all peers together; a fragment counts once", () => {
  const size = fragment(10).bytes.length;
  const out = bus([A, B], 3 * size);
  for (let n = 10; n < 13; n++) out.offer(fragment(n));
  assertEquals(out.peers.map(({ waiting }) => waiting), [3, 3]);
  out.offer(fragment(13));
  assertEquals(out.peers.map(({ dropped }) => dropped), [1, 1]);
  // A peer that keeps up still gets everything, though the other one hoards.
  drain(out, B);
  out.offer(fragment(14));
  assertEquals(out.peers.map(({ waiting, dropped }) => [waiting, dropped]), [[3, 2], [1, 1]]);
  drain(out, A);
  drain(out, B);
  for (let n = 20; n < 23; n++) out.offer(fragment(n));
  assertEquals(out.peers.map(({ waiting }) => waiting), [3, 3]);
});

Deno.test("a lost peer is tried again after a pause that doubles, up to half a minute", () => {
  const out = bus([A]);
  assertEquals(out.dialAt(A), 0);
  const pauses: number[] = [];
  let now = 0;
  for (let i = 0; i < 10; i++) {
    out.dialing(A);
    assertEquals(out.dialAt(A), undefined);
    out.failed(A, "refused", now);
    pauses.push(out.dialAt(A)! - now);
    now = out.dialAt(A)!;
  }
  assertEquals(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
  assertEquals(out.peers[0]!.lastError, "refused");
  // A connection that broke at once does not count as a good one.
  out.dialing(A);
  out.connected(A, now);
  out.failed(A, "reset", now + 9_999);
  assertEquals(out.dialAt(A)! - now, 9_999 + 30_000);
  out.dialing(A);
  out.connected(A, now);
  out.failed(A, "reset", now + 10_000);
  assertEquals(out.dialAt(A)! - now, 10_000 + 250);
  // Random parts spread the attempts over the second half of the pause.
  const spread = new DeltaBus([A], { random: () => 0 });
  spread.failed(A, "refused", 0);
  assertEquals(spread.dialAt(A), 125);
});

Deno.test("what was being written is still there after a reconnect", () => {
  const out = bus([A]);
  out.connected(A, 0);
  out.offer(fragment(1));
  const head = out.head(A, FLEET);
  out.failed(A, "reset", 0);
  assertEquals(out.head(A, FLEET), head);
});

Deno.test("a snapshot goes before what comes after it, and its sequences do too", () => {
  const source = new Source();
  const out = bus();
  const publish = (value: number) => {
    for (
      const fragment of source.engine.publish(
        [{ shape: [1], values: Float32Array.of(value) }],
        out.next,
        FLEET,
      )
    ) out.offer(fragment);
  };
  out.connected(A, 0);
  publish(1);
  publish(2);
  out.want(A, nonceOf(1));
  publish(3);
  assertEquals(out.serve(source.engine), [A]);
  assertEquals(out.serve(source.engine), []);
  publish(4);
  const sequences: bigint[] = [];
  const tags: string[] = [];
  for (let head = out.head(A, FLEET); head !== undefined; head = out.head(A, FLEET)) {
    const { sessionId, sequence } = openDwe(head.bytes, KEYS);
    tags.push(sessionId.split(":").slice(2).join(":"));
    sequences.push(sequence);
    assertEquals(out.head(A, FLEET), head);
    out.sent(A, head);
  }
  assertEquals(tags, [`snapshot:3:1/1:${nonceOf(1)}`, "delta:4:1/1"]);
  assert(sequences[0]! < sequences[1]!);
  // The other peer was not touched by any of it.
  assertEquals(drain(out, B).length, 4);
});

Deno.test("one snapshot is out at a time: the same for who asks now, a newer one later", () => {
  const source = new Source();
  source.publish(Float32Array.of(1));
  const out = bus();
  for (const address of [A, B]) out.connected(address, 0);
  out.want(A, nonceOf(1));
  assertEquals(out.serve(source.engine), [A]);
  source.publish(Float32Array.of(2));
  out.want(B, nonceOf(2));
  assertEquals(out.serve(source.engine), []);
  drain(out, A);
  assertEquals(out.serve(source.engine), [B]);
  out.want(A, nonceOf(3));
  assertEquals(out.serve(source.engine), [A]);
  const versions = [A, B].map((address) => parseTag(drain(out, address)[0]!));
  assertEquals(versions.map((tag) => tag?.what === "snapshot" ? tag.version : 0), [2, 2]);
  assertEquals(out.busy, false);
});

Deno.test("there is no snapshot before the first consensus, and none for who is gone", () => {
  const source = new Source();
  const out = bus();
  out.connected(A, 0);
  out.want(A, nonceOf(1));
  assertEquals(out.serve(source.engine), []);
  source.publish(Float32Array.of(1));
  out.failed(A, "reset", 0);
  assertEquals(out.serve(source.engine), []);
});

Deno.test("nothing waits for a replica that is away: it asks for a snapshot when it is back", () => {
  const source = new Source();
  source.publish(Float32Array.of(1));
  const out = bus();
  out.connected(A, 0);
  out.want(A, nonceOf(1));
  out.serve(source.engine);
  drain(out, A);
  out.offer(fragment(1));
  assertEquals(out.peers[0], {
    address: A,
    state: "open",
    replica: true,
    waiting: 1,
    dropped: 0,
    sent: 1,
    lastError: undefined,
  });
  out.failed(A, "reset", 0);
  out.offer(fragment(2));
  assertEquals(out.peers.map(({ waiting }) => waiting), [0, 2]);
});

Deno.test("what is being written when a snapshot is asked for is not counted twice", () => {
  const source = new Source();
  source.publish(Float32Array.of(1));
  const out = bus([A]);
  out.connected(A, 0);
  out.offer(fragment(1));
  const underWay = out.head(A, FLEET)!;
  out.want(A, nonceOf(1));
  out.serve(source.engine);
  out.sent(A, underWay);
  assertEquals(out.peers[0]!.sent, 1);
  assertEquals(drain(out, A).length, 1);
});

Deno.test("requests and other noise from peers are counted", () => {
  const out = bus([A]);
  out.heard("want", 300);
  out.rejected(A, "a request of 9999 bytes");
  const { received, rejected, lastSession, lastFragmentBytes, lastError } = out.telemetry;
  assertEquals([received, rejected, lastSession, lastFragmentBytes], [2, 1, "want", 300]);
  assertEquals(lastError, "a request of 9999 bytes");
});

Deno.test("the engine tells a change against what was published last", () => {
  const engine = new DeltaEngine(SID);
  let sequence = 0n;
  const publish = (...values: number[]) => {
    const tensors = [{ shape: [values.length], values: Float32Array.from(values) }];
    return [...engine.publish(tensors, () => ++sequence, FLEET)].map(({ bytes }) =>
      openDwe(bytes, KEYS)
    );
  };
  assertEquals(publish(1, 2).map(({ layers }) => layers), [[]]);
  const [second] = publish(1.5, 1);
  assertEquals(second!.layers, [{ layerIndex: 0, shape: [2], values: Float32Array.of(0.5, -1) }]);
  assertEquals(second!.sessionId, `tierfold-1:${SID}:delta:2:1/1`);
  // Of another schema: its layers come after those that are there.
  publish(1, 2, 3);
  const [fourth] = publish(2, 2, 2);
  assertEquals(fourth!.layers, [{ layerIndex: 1, shape: [3], values: Float32Array.of(1, 0, -1) }]);
  assertEquals(decodeDwe(engine.hello(9n, FLEET).bytes).fragment.sessionId.at(-1), "4");
});

Deno.test("a consensus that cannot be told as changes is refused, and nothing has moved", () => {
  const engine = new DeltaEngine(SID);
  const publish = (...values: number[]) => [
    ...engine.publish(
      [{ shape: [values.length], values: Float32Array.from(values) }],
      () => 1n,
      FLEET,
    ),
  ];
  for (const value of [NaN, Infinity]) {
    assertThrows(() => publish(1, value), UnpublishableError, "value 1 of tensor 0");
  }
  assertEquals(engine.version, 0);
  publish(3e38, 0);
  assertThrows(() => publish(-3e38, 1), UnpublishableError, "value 0");
  assertThrows(() => publish(NaN, 1), UnpublishableError);
  assertEquals(engine.version, 1);
  const [next] = publish(3e38, 2);
  assertEquals(openDwe(next!.bytes, KEYS).layers[0]!.values, Float32Array.of(0, 2));
});

Deno.test("the engine follows a bounded number of schemas", () => {
  const source = new Source();
  for (let n = 1; n <= 16; n++) source.publish(new Float32Array(n));
  assertThrows(() => source.publish(new Float32Array(17)), UnpublishableError, "schema");
  source.publish(new Float32Array(16));
  assertEquals(source.engine.version, 17);
});
