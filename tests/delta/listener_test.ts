// The listener over real sockets: bad senders, floods, rotation.
import { assert, assertEquals, assertInstanceOf, assertRejects, assertThrows } from "@std/assert";
import { TextLineStream } from "@std/streams";
import { KeyRing } from "../../delta/keys.ts";
import { DeltaListener, type DeltaListenerOptions } from "../../delta/listener.ts";
import type { LiveLayer } from "../../delta/weights.ts";
import { TransportError } from "../../transport/connection.ts";
import { DWE_MAX_BYTES, DweError, sealDwe } from "../../wire/dwe.ts";
import { FLEET, layer, live, OLD, plain, RING } from "./fragments.ts";
import { Sender, until } from "./sockets.ts";

const LOOPBACK = { hostname: "127.0.0.1", port: 0 };

async function withListener(
  options: Partial<DeltaListenerOptions>,
  test: (listener: DeltaListener, layers: readonly LiveLayer[]) => Promise<void>,
): Promise<void> {
  const layers = live([0, 0]);
  const listener = DeltaListener.listen({ listen: LOOPBACK, ring: RING, layers, ...options });
  try {
    await test(listener, layers);
  } finally {
    await listener.close();
  }
}

Deno.test("fragments of several senders are applied as they come", async () => {
  await withListener({}, async (listener, layers) => {
    const senders = await Promise.all([1, 2, 3].map(() => Sender.to(listener.address)));
    await Promise.all(senders.map(async (sender, i) => {
      for (let n = 1; n <= 20; n++) {
        await sender.fragment(plain(n, [layer(0, 1, 2)], { session: `sender-${i}` }));
      }
    }));
    await until(() => listener.telemetry.applied === 60, "all is applied");
    assertEquals(layers, live([60, 120]));
    assertEquals(listener.connections, 3);
    for (const sender of senders) sender.close();
    await until(() => listener.connections === 0, "the senders are gone");
  });
});

Deno.test("a fragment split into single bytes is taken like any other", async () => {
  await withListener({}, async (listener, layers) => {
    const sender = await Sender.to(listener.address);
    const bytes = plain(1, [layer(0, 1, 1)]);
    await sender.raw(Uint8Array.of(bytes.length & 255, bytes.length >> 8, 0, 0));
    for (const byte of bytes) await sender.raw(Uint8Array.of(byte));
    await until(() => listener.telemetry.applied === 1, "it is applied");
    assertEquals(layers, live([1, 1]));
    sender.close();
  });
});

Deno.test("a fragment of exactly 8 MiB is taken, one byte more is refused before it is read", async () => {
  const room = DWE_MAX_BYTES - plain(1, [layer(0)]).length;
  const count = Math.floor(room / 4);
  const layers = [{ shape: [count], values: new Float32Array(count) }];
  await withListener({ layers }, async (listener) => {
    const session = "s1".padEnd(2 + room % 4, "x");
    const bytes = plain(1, [{
      layerIndex: 0,
      shape: [count],
      values: new Float32Array(count).fill(1),
    }], {
      session,
    });
    assertEquals(bytes.length, DWE_MAX_BYTES);
    const sender = await Sender.to(listener.address);
    await sender.fragment(bytes);
    await until(() => listener.telemetry.applied === 1, "it is applied");
    assert(layers[0]!.values.every((value) => value === 1));
    // Only the length is sent; the connection is closed for that alone.
    await sender.fragment(new Uint8Array(), DWE_MAX_BYTES + 1);
    await sender.untilClosed();
    sender.close();
    assertEquals(listener.telemetry.rejected, 1);
    assert(listener.telemetry.lastError!.includes(`${DWE_MAX_BYTES + 1} bytes`));
  });
});

Deno.test("strangers lose their connection, members of the fleet keep theirs", async () => {
  await withListener({}, async (listener, layers) => {
    const tampered = plain(1, [layer(0, 1, 1)]);
    tampered[60]! ^= 1;
    const strangers: [string, Uint8Array][] = [
      ["unsigned", plain(1, [layer(0, 1, 1)], { key: undefined })],
      ["wrong key", plain(1, [layer(0, 1, 1)], { key: OLD })],
      ["tampered", tampered],
      ["garbage", crypto.getRandomValues(new Uint8Array(100))],
      ["nothing", new Uint8Array()],
    ];
    for (const [i, [name, bytes]] of strangers.entries()) {
      const sender = await Sender.to(listener.address);
      await sender.fragment(bytes);
      assertEquals(await sender.untilClosed(), new Uint8Array(), name);
      sender.close();
      assertEquals(listener.telemetry.rejected, i + 1, name);
    }
    const member = await Sender.to(listener.address);
    await member.fragment(plain(5, [layer(0, 1, 1)]));
    await member.fragment(plain(5, [layer(0, 1, 1)]));
    await member.fragment(plain(4, [layer(0, 1, 1)]));
    await member.fragment(plain(6, [layer(9, 1)]));
    await member.fragment(plain(7, [layer(0, 1, 1)]));
    await until(() => listener.telemetry.applied === 2, "the last one is applied");
    assertEquals(layers, live([2, 2]));
    assertEquals(listener.telemetry.rejected, strangers.length + 3);
    member.close();
  });
});

Deno.test("when connections run out, a silent stranger makes room, a member does not", async () => {
  await withListener({ maxConnections: 2 }, async (listener, layers) => {
    const member = await Sender.to(listener.address);
    await member.fragment(plain(1, [layer(0, 1, 1)], { session: "a" }));
    await until(() => listener.telemetry.applied === 1, "the member is known");
    const silent = await Sender.to(listener.address);
    await until(() => listener.connections === 2, "the stranger is there");
    const second = await Sender.to(listener.address);
    await silent.untilClosed();
    await second.fragment(plain(1, [layer(0, 1, 1)], { session: "b" }));
    await until(() => listener.telemetry.applied === 2, "the second member is known");
    const late = await Sender.to(listener.address);
    await late.untilClosed();
    await member.fragment(plain(2, [layer(0, 1, 1)], { session: "a" }));
    await until(() => listener.telemetry.applied === 3, "the first member still counts");
    assertEquals(layers, live([3, 3]));
    for (const sender of [member, silent, second, late]) sender.close();
  });
});

Deno.test("keys are rotated in their files while senders stay connected", async () => {
  const directory = await Deno.makeTempDir();
  const [current, previous] = [`${directory}/current`, `${directory}/previous`];
  const write = (now: string, before: string) => {
    Deno.writeTextFileSync(current, now);
    Deno.writeTextFileSync(previous, before);
  };
  try {
    write("old-key", "older-key");
    const ring = new KeyRing({ current: { file: current }, previous: { file: previous } });
    await withListener({ ring }, async (listener, layers) => {
      const sender = await Sender.to(listener.address);
      let sequence = 0;
      const send = async (key: Uint8Array, applied: number) => {
        await sender.fragment(plain(++sequence, [layer(0, 1, 1)], { key }));
        await until(() => listener.telemetry.received === sequence, "it came");
        assertEquals(listener.telemetry.applied, applied);
      };
      await send(OLD, 1);
      write("fleet-secret", "old-key");
      // Files are believed for a second.
      await new Promise((resolve) => setTimeout(resolve, 1_050));
      await send(OLD, 2);
      await send(FLEET, 3);
      write("fleet-secret", "fleet-secret");
      await new Promise((resolve) => setTimeout(resolve, 1_050));
      await send(FLEET, 4);
      await send(OLD, 4);
      await sender.untilClosed();
      assertEquals(layers, live([4, 4]));
      sender.close();
    });
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});

Deno.test("without any key a listener starts only when told so", async () => {
  const options = { listen: LOOPBACK, ring: KeyRing.of({}), layers: live([0, 0]) };
  const error = assertThrows(() => DeltaListener.listen(options));
  assertInstanceOf(error, DweError);
  await withListener({ ...options, allowUnsigned: true }, async (listener) => {
    const sender = await Sender.to(listener.address);
    await sender.fragment(plain(1, [layer(0, 1, 1)], { key: undefined }));
    await until(() => listener.telemetry.applied === 1, "it is applied");
    assertEquals(options.layers, live([1, 1]));
    sender.close();
  });
});

Deno.test("a taken address is named, and a closed listener ends its waiters", async () => {
  const listener = DeltaListener.listen({ listen: LOOPBACK, ring: RING });
  const { port } = listener.address;
  const again = () => DeltaListener.listen({ listen: { hostname: "127.0.0.1", port }, ring: RING });
  assertThrows(again, TransportError, `127.0.0.1:${port}`);
  const waiting = assertRejects(() => listener.ready, TransportError, "closed");
  await listener.close();
  await listener.close();
  await waiting;
});

Deno.test("a flood of garbage neither stops a listener nor fills its memory", async () => {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "--allow-net=127.0.0.1",
      "--allow-read",
      "--allow-env",
      new URL("listener_process.ts", import.meta.url).pathname,
    ],
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const lines = (child.stdout.pipeThrough(new TextDecoderStream())
    .pipeThrough(new TextLineStream()) as ReadableStream<string>).getReader();
  const stdin = child.stdin.getWriter();
  const line = async () => JSON.parse((await lines.read()).value!);
  const figures = async () => {
    await stdin.write(new TextEncoder().encode("figures\n"));
    return await line();
  };
  try {
    const address = await line();
    const before = await figures();
    let sequence = 0;
    const member = await Sender.to(address);
    await member.fragment(plain(++sequence, [layer(0, 1, 1)]));
    await until(async () => (await figures()).telemetry.applied === 1, "the member is known");
    const u32 = (value: number) => new Uint8Array(Uint32Array.of(value).buffer);
    const noise = (length: number) => {
      const bytes = new Uint8Array(length);
      for (let at = 0; at < length; at += 65_536) {
        crypto.getRandomValues(bytes.subarray(at, Math.min(at + 65_536, length)));
      }
      return bytes;
    };
    const megabyte = noise(1024 * 1024);
    const unsigned = sealDwe({
      sessionId: "flood",
      sequence: 1n,
      layers: [{ layerIndex: 0, shape: [500_000], values: new Float32Array(500_000) }],
    }, undefined);
    const attacks: ((sender: Sender) => Promise<void>)[] = [
      (sender) => sender.raw(megabyte),
      (sender) => sender.fragment(noise(1_000)),
      (sender) => sender.fragment(noise(10), DWE_MAX_BYTES),
      (sender) => sender.raw(u32(0xffff_ffff)),
      (sender) => sender.fragment(unsigned),
      (sender) => sender.fragment(megabyte, DWE_MAX_BYTES),
      async () => {},
    ];
    let tried = 0;
    let peak = before.rss;
    const open: Sender[] = [];
    for (const end = Date.now() + 3_000; Date.now() < end;) {
      // Some are closed at once, others stay open with half a fragment until they are thrown out.
      const batch = await Promise.all(attacks.map(async (attack) => {
        const sender = await Sender.to(address);
        await attack(sender).catch(() => {});
        tried++;
        return sender;
      }));
      open.push(...batch);
      for (const old of open.splice(0, Math.max(0, open.length - 30))) old.close();
      await member.fragment(plain(++sequence, [layer(0, 1, 1)]));
      peak = Math.max(peak, (await figures()).rss);
    }
    await until(
      async () => (await figures()).telemetry.applied === sequence,
      "the member got through",
    );
    const after = await figures();
    assertEquals(after.values, [sequence, sequence]);
    assert(
      after.telemetry.rejected > tried / 4,
      `${after.telemetry.rejected} of ${tried} rejected`,
    );
    assert(after.connections <= 16, `${after.connections} connections`);
    // 16 connections with a fragment each, decoded twice at most, and the runtime's own ups and downs.
    const bound = 256 * 1024 ** 2;
    assert(peak - before.rss < bound, `${(peak - before.rss) / 1024 ** 2} MiB more`);
    for (const sender of open) sender.close();
    member.close();
  } finally {
    await stdin.close();
    lines.cancel().catch(() => {});
    assertEquals((await child.status).code, 0);
  }
});
