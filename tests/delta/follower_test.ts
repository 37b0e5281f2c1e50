// What a receiver makes of fragments: plain ones, Tierfold's, and bad ones.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import { decodeDwe, DWE_MAX_BYTES, encodeDwe, sealDwe } from "../../wire/dwe.ts";
import { KeyRing } from "../../delta/keys.ts";
import { addressOf, planFragments, RUN_VALUES } from "../../delta/layout.ts";
import { formatTag, parseTag, sequenceOwner, type SessionTag } from "../../delta/session.ts";
import { vectorBytes } from "../vectors.ts";
import {
  brief,
  FLEET,
  follower,
  key,
  layer,
  live,
  nonceOf,
  OLD,
  plain,
  SID,
  Source,
} from "./fragments.ts";

Deno.test("a plain receiver adds what it believes, and counts", () => {
  const layers = live([0, 0], [1, 1, 1]);
  const peer = follower({ layers });
  assertEquals(brief(peer.accept(plain(1, [layer(0, 1, 2), layer(1, 1, 1, 1)]))), "applied");
  assertEquals(brief(peer.accept(plain(2, [layer(1, 0.5, 0, -1)]))), "applied");
  assertEquals(layers, live([1, 2], [2.5, 2, 1]));
  assertEquals(brief(peer.accept(plain(3, []))), "ignored");
  const { lastFragmentBytes, ...rest } = peer.telemetry;
  assertEquals(rest, {
    queued: 0,
    sent: 0,
    received: 3,
    applied: 2,
    rejected: 0,
    lastSession: "s1",
    lastError: undefined,
  });
  assertEquals(lastFragmentBytes, plain(3, []).length);
});

Deno.test("the golden fragments are applied, and the bad ones change nothing", () => {
  const zeros = (...counts: number[]) => live(...counts.map((n) => Array(n).fill(0)));
  const layers = zeros(2, 1, 1, 1, 1, 6);
  const peer = follower({ layers, ring: KeyRing.of({ current: FLEET, previous: OLD }) });
  assertEquals(brief(peer.accept(vectorBytes("dwe_unsigned.bin"))), "Unsigned, close");
  assertEquals(brief(peer.accept(vectorBytes("bad_dwe_tampered.bin"))), "BadSignature, close");
  assertEquals(brief(peer.accept(vectorBytes("bad_dwe_truncated.bin"))), "Truncated, close");
  assertEquals(brief(peer.accept(vectorBytes("bad_dwe_huge_layer_count.bin"))), "Truncated, close");
  assertEquals(brief(peer.accept(vectorBytes("dwe_signed_sample.bin"))), "StateHash, close");
  assertEquals(layers, zeros(2, 1, 1, 1, 1, 6));
  assertEquals(brief(peer.accept(vectorBytes("dwe_signed.bin"))), "applied");
  assertEquals(layers[0]!.values, Float32Array.of(1, 2));
  // The same session and sequence under the previous key: believed, but seen before.
  assertEquals(brief(peer.accept(vectorBytes("dwe_signed_previous_key.bin"))), "Repeated");
  assertEquals(peer.telemetry.rejected, 6);
});

Deno.test("repeated and out-of-order fragments are refused, session by session", () => {
  const layers = live([0]);
  const peer = follower({ layers });
  const send = (sequence: number, session = "s1") =>
    brief(peer.accept(plain(sequence, [layer(0, 1)], { session })));
  assertEquals([send(5), send(5), send(4), send(6)], [
    "applied",
    "Repeated",
    "OutOfOrder",
    "applied",
  ]);
  assertEquals([send(1, "s2"), send(1, "s2")], ["applied", "Repeated"]);
  assertEquals([send(2 ** 53 + 2), send(7)], ["applied", "OutOfOrder"]);
  assertEquals(layers, live([4]));
});

Deno.test("the memory of sessions is bounded; the one not heard of for longest is forgotten", () => {
  const peer = follower({ layers: live([0]) });
  const send = (session: string) => brief(peer.accept(plain(1, [layer(0, 1)], { session })));
  send("first");
  for (let i = 0; i < 1_023; i++) send(`s${i}`);
  assertEquals(send("first"), "Repeated");
  send("one more");
  assertEquals(send("first"), "applied");
});

Deno.test("a fragment that does not fit changes nothing at all", () => {
  const layers = live([0, 0], [0]);
  const peer = follower({ layers });
  const cases: [ReturnType<typeof layer>[], string][] = [
    [[layer(0, 1, 1), layer(2, 1)], "UnknownLayer"],
    [[layer(0, 1, 1), layer(1, 1, 1)], "ShapeMismatch"],
    [[layer(0, 1, 1), { ...layer(1, 1), shape: [2] }], "ShapeMismatch"],
    [[layer(0, 1, 1), { ...layer(1, 1), shape: [0, Number.MAX_SAFE_INTEGER] }], "ShapeMismatch"],
    [[layer(0, 1, 1), { ...layer(1), shape: [] }], "ShapeMismatch"],
    [[layer(0, 1, 1), layer(2 ** 32 + 1, 1, 1)], "ShapeMismatch"],
    [[layer(0, 1, 1), layer(2 * 2 ** 32, 1)], "ShapeMismatch"],
    [[layer(0, 1, 1), layer(1_048_575 * 2 ** 32, 1)], "UnknownLayer"],
  ];
  for (const [i, [changes, code]] of cases.entries()) {
    assertEquals(brief(peer.accept(plain(i + 1, changes))), code, `case ${i}`);
  }
  assertEquals(layers, live([0, 0], [0]));
  // A dim of another split, but as many values: plain peers compare counts.
  assertEquals(brief(peer.accept(plain(99, [{ ...layer(0, 1, 2), shape: [2, 1] }]))), "applied");
  assertEquals(peer.telemetry.rejected, cases.length);
});

Deno.test("keys can be rotated between two fragments", () => {
  let keys: { current?: Uint8Array; previous?: Uint8Array } = { current: OLD };
  const peer = follower({ layers: live([0]), ring: { keys: () => keys } });
  let sequence = 0;
  const send = (key: Uint8Array | undefined) =>
    brief(peer.accept(plain(++sequence, [layer(0, 1)], { key })));
  assertEquals([send(OLD), send(FLEET)], ["applied", "BadSignature, close"]);
  keys = { current: FLEET, previous: OLD };
  assertEquals([send(OLD), send(FLEET)], ["applied", "applied"]);
  keys = { current: FLEET };
  assertEquals([send(OLD), send(FLEET)], ["BadSignature, close", "applied"]);
  assertEquals(send(undefined), "Unsigned, close");
  keys = {};
  assertEquals([send(undefined), send(key("any"))], ["applied", "applied"]);
});

Deno.test("session ids of Tierfold say what they should, and nothing else passes for one", () => {
  const tags: SessionTag[] = [
    { what: "hello", sid: SID, version: 0 },
    { what: "base", sid: SID, version: 12 },
    { what: "delta", sid: SID, version: 12, part: 1, parts: 3 },
    { what: "snapshot", sid: SID, version: 9, part: 3, parts: 3, nonce: nonceOf(1) },
    { what: "want", sid: SID, hello: 2n ** 64n - 1n, nonce: nonceOf(2) },
  ];
  for (const tag of tags) assertEquals(parseTag(formatTag(tag)), tag);
  for (
    const text of [
      "s1",
      "",
      "tierfold-1",
      `tierfold-2:${SID}:hello:1`,
      `tierfold-1:${SID}:hello:1 `,
      `tierfold-1:${SID}:hello:-1`,
      `tierfold-1:${SID}:delta:1:0/3`,
      `tierfold-1:${SID}:delta:1:4/3`,
      `tierfold-1:${SID}:snapshot:1:1/3`,
      `tierfold-1:${SID.toUpperCase()}:hello:1`,
    ]
  ) assertEquals(parseTag(text), undefined, text);
  assertEquals(sequenceOwner("s1"), "s1");
  assertEquals(sequenceOwner(formatTag(tags[2]!)), sequenceOwner(formatTag(tags[3]!)));
  assert(sequenceOwner(formatTag(tags[0]!)) !== sequenceOwner(formatTag(tags[2]!)));
});

Deno.test("a plan covers every value once, in fragments under 8 MiB", () => {
  const big = 5 * RUN_VALUES + 17;
  const shapes = [[3], [], [0], [big], [1_500_000], [1_500_000], [2, 3], [2_090_000]];
  for (const withShapes of [false, true]) {
    const plan = planFragments(shapes.map((shape, i) => ({ layer: i, shape })), withShapes);
    const seen = shapes.map(() => 0);
    for (const pieces of plan) {
      const sessionId = formatTag({
        what: "snapshot",
        sid: SID,
        version: 10 ** 15 - 1,
        part: 1,
        parts: 10 ** 9 - 1,
        nonce: nonceOf(1),
      });
      const layers = pieces.map(({ layerIndex, shape, count }) => ({
        layerIndex,
        shape,
        values: new Float32Array(count),
      }));
      const bytes = sealDwe({ sessionId, sequence: 1n, layers }, FLEET).length;
      assert(bytes <= DWE_MAX_BYTES, `${bytes} bytes`);
      for (const { layer, layerIndex, from, count } of pieces) {
        const address = addressOf(layerIndex);
        assertEquals(address.layer, layer);
        if (address.kind === "shape") continue;
        assertEquals(address.kind === "run" ? address.from : 0, from);
        assertEquals(seen[layer], from);
        seen[layer] = from + count;
      }
    }
    assertEquals(seen, [3, 1, 0, big, 1_500_000, 1_500_000, 6, 2_090_000]);
    const marks = plan.flat().filter(({ layerIndex }) => addressOf(layerIndex).kind === "shape");
    assertEquals(marks.map(({ shape }) => shape), withShapes ? [[big, 0]] : []);
  }
  assertEquals(planFragments([], false), [[]]);
});

/** Feeds fragments to a follower and says what it made of each. */
function feed(peer: ReturnType<typeof follower>, ...fragments: { bytes: Uint8Array }[]): string[] {
  return fragments.map(({ bytes }) => brief(peer.accept(bytes)));
}

Deno.test("a replica asks for a snapshot, gets it, and follows", () => {
  const source = new Source();
  const replica = follower();
  assertEquals(feed(replica, source.hello()), ["ignored, want"]);
  // The first consensus of a schema is announced; the snapshot was asked for already.
  assertEquals(feed(replica, ...source.publish(Float32Array.of(1, 2))), ["ignored"]);
  assertEquals(feed(replica, ...source.snapshot(nonceOf(1))), ["applied, snapshot 1"]);
  assertEquals(replica.layers, live([1, 2]));
  assertEquals(feed(replica, ...source.publish(Float32Array.of(1.5, 1))), ["applied, delta 2"]);
  assertEquals(replica.layers, live([1.5, 1]));
  assertEquals(replica.version, { sid: SID, version: 2 });
});

Deno.test("a replica that missed a version asks again, once, and catches up", () => {
  const source = new Source();
  const replica = follower();
  source.publish(Float32Array.of(1));
  feed(replica, source.hello(), ...source.snapshot(nonceOf(1)));
  source.publish(Float32Array.of(2));
  assertEquals(feed(replica, ...source.publish(Float32Array.of(3))), ["ignored, want"]);
  assertEquals(feed(replica, ...source.publish(Float32Array.of(4))), ["ignored"]);
  assertEquals(replica.layers, live([1]));
  assertEquals(feed(replica, ...source.snapshot(nonceOf(2))), ["applied, snapshot 4"]);
  assertEquals(feed(replica, ...source.publish(Float32Array.of(5))), ["applied, delta 5"]);
  assertEquals(replica.layers, live([5]));
});

Deno.test("a replica that is up to date asks for nothing when it is greeted again", () => {
  const source = new Source();
  const replica = follower();
  source.publish(Float32Array.of(1));
  feed(replica, source.hello(), ...source.snapshot(nonceOf(1)));
  assertEquals(feed(replica, source.hello()), ["ignored"]);
  source.publish(Float32Array.of(2));
  assertEquals(feed(replica, source.hello()), ["ignored, want"]);
});

Deno.test("new layers in mid-session make a replica ask for a snapshot", () => {
  const source = new Source();
  const replica = follower();
  source.publish(Float32Array.of(1));
  feed(replica, source.hello(), ...source.snapshot(nonceOf(1)));
  assertEquals(feed(replica, ...source.publish(Float32Array.of(7, 8))), ["ignored, want"]);
  feed(replica, ...source.snapshot(nonceOf(2)));
  assertEquals(replica.layers, live([1], [7, 8]));
  assertEquals(feed(replica, ...source.publish(Float32Array.of(3))), ["applied, delta 3"]);
  assertEquals(feed(replica, ...source.publish(Float32Array.of(9, 9))), ["applied, delta 4"]);
  assertEquals(replica.layers, live([3], [9, 9]));
});

Deno.test("a replica stays with its publisher until another one's fresh snapshot is here", () => {
  const [first, second] = [new Source(), new Source("ffffffffffffffff")];
  const replica = follower();
  first.publish(Float32Array.of(1));
  second.publish(Float32Array.of(100));
  feed(replica, first.hello(), ...first.snapshot(nonceOf(1)));
  // Deltas of a stranger are nothing; its hello makes the replica ask.
  assertEquals(feed(replica, ...second.publish(Float32Array.of(101))), ["ignored"]);
  assertEquals(feed(replica, second.hello()), ["ignored, want"]);
  assertEquals(feed(replica, ...first.publish(Float32Array.of(2))), ["applied, delta 2"]);
  // A recorded snapshot answers another nonce.
  assertEquals(feed(replica, ...second.snapshot(nonceOf(1))), ["ignored"]);
  assertEquals(replica.layers, live([2]));
  assertEquals(feed(replica, ...second.snapshot(nonceOf(2))), ["applied, snapshot 2"]);
  assertEquals(replica.layers, live([101]));
  assertEquals(feed(replica, ...first.publish(Float32Array.of(3))), ["ignored"]);
});

Deno.test("a replica takes nothing from plain senders, and no request either", () => {
  const replica = follower();
  const source = new Source();
  const want = replica.accept(source.hello().bytes).reply!;
  assertEquals(brief(replica.accept(plain(1, [layer(0, 1)]))), "UnknownLayer");
  assertEquals(brief(replica.accept(want)), "UnknownLayer");
  const tag = parseTag(decodeDwe(want).fragment.sessionId);
  assertEquals(tag, { what: "want", sid: SID, hello: 1n, nonce: nonceOf(1) });
});

Deno.test("a large layer travels in runs, and arrives whole, with its shape", () => {
  const source = new Source();
  const replica = follower();
  const count = 2 * RUN_VALUES + 5;
  const shape = [5, count / 5 | 0].reduce((a, b) => a * b) === count ? [5, count / 5] : [1, count];
  const values = Float32Array.from({ length: count }, (_, i) => i % 1_000);
  const publish = (values: Float32Array, small: number) => [
    ...source.engine.publish(
      [{ shape, values }, { shape: [], values: Float32Array.of(small) }],
      source.next,
      FLEET,
    ),
  ];
  publish(values, 1);
  const verdicts = feed(replica, source.hello(), ...source.snapshot(nonceOf(1)));
  assertEquals(verdicts, ["ignored, want", "applied", "applied, snapshot 1"]);
  assertEquals(replica.layers.map((layer) => layer.shape), [shape, []]);
  assert(replica.layers[0]!.values.every((value, i) => value === i % 1_000));
  const moved = values.map((value) => value + 1);
  const changes = publish(moved, 2);
  assertEquals(feed(replica, ...changes), ["applied", "applied, delta 2"]);
  assert(replica.layers[0]!.values.every((value, i) => value === moved[i]));
  assertEquals(replica.layers[1]!.values, Float32Array.of(2));

  // A plain peer with the same layers refuses the runs and stays as it was.
  const plainPeer = follower({ layers: live([0], [0]) });
  const outcomes = feed(plainPeer, ...changes);
  assertEquals(outcomes, ["ShapeMismatch", "ShapeMismatch"]);
  assertEquals(plainPeer.layers, live([0], [0]));

  // A missing part in the middle of a version: asked for again, whole.
  const [, last] = publish(values, 3);
  assertEquals(feed(replica, last!), ["ignored, want"]);
  assertEquals(feed(replica, ...source.snapshot(nonceOf(2))), ["applied", "applied, snapshot 3"]);
  assertEquals(replica.layers[1]!.values, Float32Array.of(3));
});

Deno.test("a snapshot that is too large or broken is given up until the next hello", () => {
  const source = new Source();
  source.publish(new Float32Array(100));
  const small = follower({ maxBytes: 399 });
  assertEquals(feed(small, source.hello(), ...source.snapshot(nonceOf(1))), [
    "ignored, want",
    "Oversized, close",
  ]);
  assertEquals(feed(small, ...source.publish(new Float32Array(100))), ["ignored"]);
  assertEquals(feed(small, source.hello()), ["ignored, want"]);

  const snapshot = (part: number, layers: ReturnType<typeof layer>[], nonce: number) =>
    sealDwe({
      sessionId: formatTag({
        what: "snapshot",
        sid: SID,
        version: 1,
        part,
        parts: 3,
        nonce: nonceOf(nonce),
      }),
      sequence: source.next(),
      layers,
    }, FLEET);
  for (
    const [i, [layers, code]] of ([
      [[layer(1, 1)], "UnknownLayer"],
      [[layer(0, 1), layer(0, 1)], "UnknownLayer"],
      [[{ ...layer(0, 1), shape: [2] }], "ShapeMismatch"],
      [[layer(2 ** 32, 1)], "UnknownLayer"],
      [
        [{ layerIndex: 1_048_575 * 2 ** 32, shape: [2 ** 40, 0], values: new Float32Array() }],
        "Oversized, close",
      ],
    ] as [ReturnType<typeof layer>[], string][]).entries()
  ) {
    const replica = follower();
    feed(replica, source.hello());
    assertEquals(brief(replica.accept(snapshot(1, layers, 1))), code, `case ${i}`);
    assertEquals(brief(replica.accept(snapshot(2, [], 1))), "ignored");
    assertEquals(replica.layers, []);
  }
  const skipping = follower();
  feed(skipping, source.hello());
  assertEquals(brief(skipping.accept(snapshot(2, [], 1))), "ignored, want");
});

Deno.test("replicas hold the publisher's weights bit for bit, after any history", () => {
  const weight = fc.oneof(
    fc.float({ noNaN: true, noDefaultInfinity: true, min: -(2 ** 100), max: 2 ** 100 }),
    fc.constantFrom(0, -0, 2 ** -149, 1, -1, 1 + 2 ** -23),
  );
  const step = fc.record({
    values: fc.array(weight, { minLength: 4, maxLength: 4 }),
    lost: fc.boolean(),
  });
  fc.assert(fc.property(fc.array(step, { minLength: 1, maxLength: 12 }), (steps) => {
    const source = new Source();
    const replica = follower();
    let drawn = 0;
    const deliver = (bytes: Uint8Array): void => {
      const { reply } = replica.accept(bytes);
      if (reply === undefined) return;
      drawn++;
      if (source.engine.version > 0) {
        source.snapshot(nonceOf(drawn)).forEach((f) => deliver(f.bytes));
      }
    };
    source.publish(Float32Array.from(steps[0]!.values));
    deliver(source.hello().bytes);
    for (const { values, lost } of steps) {
      for (const { bytes } of source.publish(Float32Array.from(values))) if (!lost) deliver(bytes);
    }
    for (const { bytes } of source.publish(Float32Array.from(steps[0]!.values))) deliver(bytes);
    const held = follower();
    held.accept(source.hello().bytes);
    for (const { bytes } of source.snapshot(nonceOf(1))) held.accept(bytes);
    assertEquals(replica.layers, held.layers);
    // And those are the consensus itself, but for the rounding of the last change.
    for (const [i, value] of Float32Array.from(steps[0]!.values).entries()) {
      const largest = Math.max(...steps.map(({ values }) => Math.abs(values[i]!)));
      const error = Math.abs(replica.layers[0]!.values[i]! - value);
      assert(error <= 2 ** -22 * largest, `${replica.layers[0]!.values[i]} for ${value}`);
    }
  }));
});

Deno.test("garbage of any kind is refused without harm", () => {
  const peer = follower({ layers: live([0]) });
  const good = plain(1, [layer(0, 1)]);
  fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
    assertEquals(peer.accept(bytes).outcome, "rejected");
  }));
  fc.assert(
    fc.property(fc.nat({ max: good.length - 1 }), fc.integer({ min: 1, max: 255 }), (at, x) => {
      const bytes = Uint8Array.from(good);
      bytes[at]! ^= x;
      assertEquals(peer.accept(bytes).outcome, "rejected");
    }),
  );
  const unsigned = encodeDwe({ ...decodeDwe(good).fragment, hmac: undefined });
  assertEquals(brief(peer.accept(unsigned)), "Unsigned, close");
  assertEquals(peer.layers, live([0]));
  assertEquals(brief(peer.accept(good)), "applied");
});
