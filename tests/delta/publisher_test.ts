// The publisher on its thread, over real sockets, to replicas and to plain peers.
import { assert, assertEquals, assertThrows } from "@std/assert";
import { type ConsensusView, DeltaPublisher } from "../../controller/delta/publisher.ts";
import { KeyRing } from "../../delta/keys.ts";
import { DeltaListener } from "../../delta/listener.ts";
import { decodeDwe, openDwe } from "../../wire/dwe.ts";
import { layoutFrame } from "../../wire/round_frame.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { KEYS, RING } from "./fragments.ts";
import { freePort, readBlob, Sender, until } from "./sockets.ts";

const KEY_TEXT = { current: { text: "fleet-secret" }, previous: {} };

/** A consensus of f32 tensors, packed as a frame packs them, at an odd offset. */
function consensus(tensors: number[][], changes: Partial<ConsensusView> = {}): ConsensusView {
  const layout = layoutFrame(tensors.map((values) => ({ dtype: 0, shape: [values.length] })));
  const memory = new Uint8Array(layout.length + 1).subarray(1);
  layout.tensors.forEach(({ at }, i) =>
    memory.set(new Uint8Array(Float32Array.from(tensors[i]!).buffer), at)
  );
  return { kind: "model", mass: 1, memory, tensors: layout.tensors, ...changes };
}

interface PublisherChoice {
  every?: number;
  snapshots?: boolean;
}

async function withPublisher(
  ports: readonly number[],
  test: (
    publisher: DeltaPublisher,
    publish: (...tensors: number[][]) => Promise<void>,
  ) => Promise<void>,
  { every = 1, snapshots = true }: PublisherChoice = {},
): Promise<void> {
  const peers = ports.map((port) => `127.0.0.1:${port}`);
  const publisher = DeltaPublisher.start({ peers, keys: KEY_TEXT, snapshots, every });
  try {
    await test(publisher, async (...tensors) => {
      const { published } = publisher.counts;
      assertEquals(publisher.offer(consensus(tensors)), undefined);
      await until(() => publisher.counts.published > published, "it is published");
    });
  } finally {
    await publisher.close();
  }
}

function replicaOn(port: number, onVersion?: (version: number) => void): DeltaListener {
  return DeltaListener.listen({
    listen: { hostname: "127.0.0.1", port },
    ring: RING,
    ...(onVersion === undefined ? {} : { onRound: ({ version }) => onVersion(version) }),
  });
}

const weights = (replica: DeltaListener) => replica.layers.map(({ values }) => [...values]);

Deno.test("a replica follows every consensus, whole", async () => {
  const port = freePort();
  const versions: number[] = [];
  const replica = replicaOn(port, (version) => versions.push(version));
  try {
    await withPublisher([port], async (publisher, publish) => {
      await until(() => publisher.telemetry?.peers[0]?.state === "open", "they are connected");
      for (let n = 1; n <= 5; n++) await publish([n, -n], [n / 3]);
      await until(() => replica.version?.version === 5, "it is there");
      assertEquals(weights(replica), [[5, -5], [Math.fround(5 / 3)]]);
      await until(() => publisher.telemetry?.bus.received === 1, "the telemetry is here");
      const { sid, version, bus, peers } = publisher.telemetry!;
      assertEquals([version, replica.version!.sid], [5, sid]);
      assertEquals([peers[0]!.replica, peers[0]!.dropped, bus.rejected], [true, 0, 0]);
      assertEquals(versions.at(-1), 5);
    });
  } finally {
    await replica.close();
  }
});

Deno.test("a replica that starts late catches up by a snapshot, and again after a restart", async () => {
  const port = freePort();
  await withPublisher([port], async (_, publish) => {
    for (let n = 1; n <= 3; n++) await publish([n, n * n]);
    for (let life = 0; life < 2; life++) {
      const replica = replicaOn(port);
      try {
        await replica.ready;
        const at = 3 + 2 * life;
        await until(() => replica.version!.version === at, "the snapshot is whole");
        assertEquals(weights(replica), [[at, at * at]]);
        for (const n of [at + 1, at + 2]) await publish([n, n * n]);
        await until(() => replica.version!.version === at + 2, "it follows");
        assertEquals(weights(replica), [[at + 2, (at + 2) ** 2]]);
      } finally {
        await replica.close();
      }
    }
  });
});

Deno.test("a replica follows a restarted publisher", async () => {
  const port = freePort();
  const replica = replicaOn(port);
  try {
    for (const value of [1, 2]) {
      await withPublisher([port], async (publisher, publish) => {
        await publish([value]);
        await until(() => replica.version?.sid === publisher.telemetry?.sid, "it follows");
        assertEquals(weights(replica), [[value]]);
      });
    }
  } finally {
    await replica.close();
  }
});

/** A DWE peer written from the wire facts alone: it reads, checks, adds, and never answers. */
class PlainPeer {
  readonly #listener: Deno.TcpListener;
  readonly weights: number[][];
  readonly seen = new Set<string>();
  applied = 0;
  refused = 0;

  constructor(listener: Deno.TcpListener, weights: number[][], answer?: Uint8Array) {
    this.#listener = listener;
    this.weights = weights;
    this.#run(answer);
  }

  async #run(answer: Uint8Array | undefined): Promise<void> {
    for await (const conn of this.#listener) {
      if (answer !== undefined) await conn.write(answer);
      for (let bytes = await readBlob(conn); bytes; bytes = await readBlob(conn)) this.#take(bytes);
      conn.close();
    }
  }

  #take(bytes: Uint8Array): void {
    const { sessionId, sequence, layers } = openDwe(bytes, KEYS);
    const id = `${sessionId} ${sequence}`;
    const fits = layers.every(({ layerIndex, values }) =>
      this.weights[layerIndex]?.length === values.length
    );
    if (this.seen.has(id) || !fits) {
      this.refused++;
      return;
    }
    this.seen.add(id);
    for (const { layerIndex, values } of layers) {
      const target = this.weights[layerIndex]!;
      values.forEach((value, i) => target[i] = Math.fround(target[i]! + value));
    }
    this.applied++;
  }
}

Deno.test("plain DWE peers stay in step, whether or not replicas may ask for snapshots", async () => {
  for (const snapshots of [true, false]) {
    const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    // It starts from the first consensus, as a training job's initial weights would be.
    const peer = new PlainPeer(listener, [[1, 1], [0.1]]);
    await withPublisher([listener.addr.port], async (publisher, publish) => {
      await publish([1, 1], [Math.fround(0.1)]);
      for (let n = 2; n <= 6; n++) await publish([n, 1 / n], [n / 10]);
      await until(() => peer.weights[0]![0] === 6, "the last one is there");
      assertEquals(peer.weights, [[6, Math.fround(1 / 6)], [Math.fround(0.6)]]);
      assertEquals(peer.refused, 0);
      assertEquals(peer.applied, snapshots ? 7 : 6);
      assertEquals(publisher.telemetry!.peers[0]!.replica, false);
    }, { snapshots });
    listener.close();
  }
});

Deno.test("a plain peer that talks is let talk, and served", async () => {
  for (
    const answer of [new Uint8Array(100).fill(255), new Uint8Array(8), Uint8Array.of(4, 0, 0, 0, 1)]
  ) {
    const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const peer = new PlainPeer(listener, [[0]], answer);
    await withPublisher([listener.addr.port], async (_, publish) => {
      for (let n = 0; n <= 3; n++) await publish([n]);
      await until(() => peer.weights[0]![0] === 3, "the last one is there");
    });
    listener.close();
  }
});

Deno.test("requests that are forged, of another connection or too long bring nothing", async () => {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  await withPublisher([listener.addr.port], async (publisher, publish) => {
    await publish([1]);
    const recorded = DeltaListener.listen({
      listen: { hostname: "127.0.0.1", port: 0 },
      ring: RING,
    });
    const conn = await listener.accept();
    const hello = (await readBlob(conn))!;
    assertEquals(decodeDwe(hello).fragment.layers, []);
    // A real replica's answer to this very hello, and what became of it on the way.
    const through = await Sender.to(recorded.address);
    await through.fragment(hello);
    const want = await Promise.race([
      through.untilClosed(),
      until(() => recorded.telemetry.received === 1, "it is greeted").then(async () => {
        await recorded.close();
        return await through.untilClosed();
      }),
    ]);
    through.close();
    const forged = Uint8Array.from(want);
    forged[40]! ^= 1;
    await conn.write(forged);
    await until(() => publisher.telemetry?.bus.rejected === 1, "the forged one is refused");
    await conn.write(want);
    await until(() => publisher.telemetry?.peers[0]?.replica === true, "the real one is heard");
    const fragments = [(await readBlob(conn))!, (await readBlob(conn))!];
    const sessions = fragments.map((bytes) => openDwe(bytes, KEYS).sessionId.split(":")[2]);
    assert(sessions.includes("snapshot"), sessions.join());
    conn.close();
    // On the next connection the old request is of no use.
    const next = await listener.accept();
    await readBlob(next);
    await next.write(want);
    await until(() => publisher.telemetry?.bus.rejected === 2, "the recorded one is refused");
    next.close();
  });
  listener.close();
});

Deno.test("only every n-th Model round with mass is published, schema by schema", async () => {
  const port = freePort();
  const replica = replicaOn(port);
  try {
    await withPublisher([port], async (publisher) => {
      const settle = () => until(() => publisher.counts.published === expected, "it is published");
      let expected = 0;
      for (let round = 0; round < 7; round++) {
        if (round % 3 === 0) expected += 2;
        publisher.offer(consensus([[round]], { kind: "control" }));
        publisher.offer(consensus([[round]], { mass: 0 }));
        publisher.offer(consensus([[round]]));
        if (round % 3 === 0) {
          await until(() => publisher.counts.published === expected - 1, "the first is out");
        }
        publisher.offer(consensus([[round, round]]));
        await settle();
      }
      await until(() => replica.version?.version === 6, "all versions are there");
      assertEquals(weights(replica), [[6], [6, 6]]);
      assertEquals(publisher.counts, { published: 6, skipped: 0, revoked: 0, refused: 0 });
    }, { every: 3 });
  } finally {
    await replica.close();
  }
});

Deno.test("a consensus with NaN is not published, and the next one is", async () => {
  const port = freePort();
  const replica = replicaOn(port);
  try {
    await withPublisher([port], async (publisher, publish) => {
      await publish([1, 1]);
      publisher.offer(consensus([[NaN, 2]]));
      await until(() => publisher.counts.refused === 1, "it is refused");
      assert(publisher.telemetry!.bus.lastError!.includes("value 0 of tensor 0 is NaN"));
      await publish([3, 3]);
      await until(() => replica.version?.version === 2, "it is there");
      assertEquals(weights(replica), [[3, 3]]);
    });
  } finally {
    await replica.close();
  }
});

Deno.test("bf16 tensors are widened, and tensors of unsent zeros are zeros", async () => {
  const port = freePort();
  const replica = replicaOn(port);
  try {
    await withPublisher([port], async (publisher) => {
      const layout = layoutFrame([{ dtype: 1, shape: [3] }, { dtype: 0, shape: [2], nbytes: 0 }]);
      const memory = new Uint8Array(layout.length);
      // The upper halves of 1.5, -2 and 2^-120.
      memory.set([0xc0, 0x3f, 0x00, 0xc0, 0x80, 0x03], layout.tensors[0]!.at);
      publisher.offer({ kind: "model", mass: 1, memory, tensors: layout.tensors });
      await replica.ready;
      assertEquals(weights(replica), [[1.5, -2, 2 ** -120], [0, 0]]);
    });
  } finally {
    await replica.close();
  }
});

Deno.test("large results are read where they lie, never half overwritten, and the last one arrives", async () => {
  const port = freePort();
  const count = 2_500_000;
  const torn: number[] = [];
  const seen: number[] = [];
  const replica = DeltaListener.listen({
    listen: { hostname: "127.0.0.1", port },
    ring: RING,
    onRound: ({ version }, layers) => {
      const values = layers[0]!.values;
      if (!values.every((value) => value === values[0])) torn.push(version);
      seen.push(values[0]!);
    },
  });
  try {
    await withPublisher([port], async (publisher) => {
      const { length, tensors } = layoutFrame([{ dtype: 0, shape: [count] }]);
      const arena = new Arena();
      const slot = new FrameSlot(arena);
      /** A round's result, written over the one before as a controller does. */
      const result = (value: number) => {
        slot.reserve(length);
        const memory = slot.frame;
        const run = new DataView(memory.buffer, memory.byteOffset + tensors[0]!.at, 4 * count);
        for (let i = 0; i < 4 * count; i += 4) run.setFloat32(i, value, true);
        slot.reader = publisher.offer({ kind: "model", mass: 1, memory, tensors });
      };
      for (let n = 1; n <= 40; n++) {
        result(n);
        // Rounds come at all paces, some of them faster than they can be published.
        if (n % 4 > 1) await new Promise((resolve) => setTimeout(resolve, 25 * (n % 4)));
      }
      await until(() => seen.at(-1) === 40, "the last one is there");
      assertEquals(torn, []);
      // The replica may have it before this loop hears that it is published.
      await until(
        () => publisher.counts.published + publisher.counts.skipped >= 40,
        "all are told",
      );
      const { published, skipped, revoked, refused } = publisher.counts;
      assertEquals([published + skipped, revoked, refused], [40, 0, 0]);
      // The slot's own run, one that is read and one that waits; a fourth when they overlap.
      assert(arena.reserved <= 5 * (length + 70_000), `${arena.reserved} bytes`);

      // Where no memory is to be had, the publisher gives up what it has not read.
      await until(() => slot.reader!.done, "nothing is read any more");
      result(41);
      slot.reader!.abandon();
      slot.frame.fill(0xff);
      assertEquals(slot.reader!.done, true);
      const { published: before } = publisher.counts;
      await until(() => {
        const { published, revoked } = publisher.counts;
        return published + revoked > before;
      }, "the thread has seen that");
      result(42);
      await until(() => seen.at(-1) === 42, "the next one is there");
      assertEquals([torn, publisher.counts.refused], [[], 0]);
    });
  } finally {
    await replica.close();
  }
});

Deno.test("peers that are away or do not read hold up nothing", async () => {
  const port = freePort();
  const deaf = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const replica = replicaOn(port);
  try {
    await withPublisher([freePort(), deaf.addr.port, port], async (publisher, publish) => {
      const conn = await deaf.accept();
      for (let n = 1; n <= 140; n++) await publish(Array(5_000).fill(n));
      await until(() => replica.version?.version === 140, "the good one has it all");
      await until(
        () => publisher.telemetry!.peers[0]!.dropped > 0,
        "the absent one's queue is full",
      );
      await until(() => publisher.telemetry!.peers[2]!.waiting === 0, "nothing waits for it");
      const [absent, silent, good] = publisher.telemetry!.peers;
      assertEquals([absent!.state === "open", absent!.waiting, absent!.dropped], [false, 128, 12]);
      assertEquals([good!.waiting, good!.dropped], [0, 0]);
      assert(silent!.waiting + silent!.dropped > 0 || silent!.sent === 140);
      assert(publisher.telemetry!.bus.lastError!.length > 0);
      conn.close();
    });
  } finally {
    await replica.close();
    deaf.close();
  }
});

Deno.test("what waits is sent before the publisher stops, and a missing key file is told at once", async () => {
  const port = freePort();
  const replica = replicaOn(port);
  try {
    await withPublisher([port], async (_, publish) => {
      await publish([1]);
      await replica.ready;
      for (let n = 2; n <= 50; n++) await publish([n]);
    });
    await until(() => replica.version?.version === 50, "all of it came");
  } finally {
    await replica.close();
  }
  const keys = { current: { file: "/no/such/file" }, previous: {} };
  assertThrows(() => DeltaPublisher.start({ peers: [], keys, snapshots: true }), Error);
});

Deno.test("keys are rotated in files at both ends, and no consensus is missed", async () => {
  const directory = await Deno.makeTempDir();
  const file = (name: string) => `${directory}/${name}`;
  const write = (name: string, key: string) => Deno.writeTextFileSync(file(name), key);
  // Files are believed for a second.
  const settled = () => new Promise((resolve) => setTimeout(resolve, 1_050));
  write("publisher", "old-key");
  write("current", "old-key");
  write("previous", "older-key");
  const port = freePort();
  const ring = new KeyRing({
    current: { file: file("current") },
    previous: { file: file("previous") },
  });
  const replica = DeltaListener.listen({ listen: { hostname: "127.0.0.1", port }, ring });
  const publisher = DeltaPublisher.start({
    peers: [`127.0.0.1:${port}`],
    keys: { current: { file: file("publisher") }, previous: {} },
    snapshots: true,
  });
  try {
    const publish = async (n: number) => {
      publisher.offer(consensus([[n]]));
      await until(() => replica.version?.version === n, `version ${n} is there`);
    };
    await publish(1);
    write("previous", "old-key");
    write("current", "new-key");
    await settled();
    await publish(2);
    write("publisher", "new-key");
    await settled();
    await publish(3);
    write("previous", "new-key");
    await settled();
    await publish(4);
    assertEquals([replica.telemetry.rejected, weights(replica)], [0, [[4]]]);
    // The old key is worth nothing any more.
    write("publisher", "old-key");
    await settled();
    publisher.offer(consensus([[5]]));
    await until(() => replica.telemetry.rejected > 0, "it is refused");
    assertEquals(weights(replica), [[4]]);
  } finally {
    await publisher.close(0);
    await replica.close();
    await Deno.remove(directory, { recursive: true });
  }
});
