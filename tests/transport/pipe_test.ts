import { assertEquals, assertRejects } from "@std/assert";
import * as fc from "fast-check";
import { TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { Pipe } from "../../transport/pipe.ts";

function numbered(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 0xff);
}

Deno.test("pipe: bytes arrive in order, the end after them", async () => {
  const [a, b] = new Pipe().ends;
  assertEquals(await a.write(numbered(10)), 10);
  await a.closeWrite();
  const into = new Uint8Array(4);
  const seen: number[] = [];
  for (let count = await b.read(into); count !== null; count = await b.read(into)) {
    seen.push(...into.subarray(0, count));
  }
  assertEquals(seen, [...numbered(10)]);
  // The other direction is open still.
  assertEquals(await b.write(numbered(3)), 3);
  assertEquals(await a.read(into), 3);
  a.close();
  await assertRejects(() => b.write(numbered(1)), Error, "Broken pipe");
  await assertRejects(() => a.read(into), Error, "operation canceled");
  assertEquals(await b.read(into), null);
});

Deno.test("pipe: a full one makes its writer wait, a closed one lets nobody wait", async () => {
  const [a, b] = new Pipe({ budget: 4 }).ends;
  assertEquals(await a.write(numbered(10)), 4);
  let written = 0;
  const waiting = a.write(numbered(10)).then((count) => written = count);
  await Promise.resolve();
  assertEquals(written, 0);
  assertEquals(await b.read(new Uint8Array(3)), 3);
  assertEquals(await waiting, 3);
  const stuck = assertRejects(() => a.write(numbered(1)), Error, "canceled");
  const idle = assertRejects(() => a.read(new Uint8Array(1)), Error, "canceled");
  await Promise.resolve();
  a.close();
  await stuck;
  await idle;
});

Deno.test("pipe: the same seed makes the same choices, another one others", async () => {
  const sizes = async (seed: number) => {
    const [a, b] = new Pipe({ seed, mostBytes: 9 }).ends;
    const all: number[] = [];
    for (let i = 0; i < 20; i++) {
      all.push(await a.write(numbered(50)));
      all.push(await b.read(new Uint8Array(50)) ?? -1);
    }
    return all;
  };
  const once = await sizes(7);
  assertEquals(await sizes(7), once);
  assertEquals(JSON.stringify(await sizes(8)) === JSON.stringify(once), false);
  assertEquals([Math.min(...once) >= 1, Math.max(...once) <= 9], [true, true]);
});

Deno.test("pipe: bytes can be changed on their way, by their place", async () => {
  const corrupt = (bytes: Uint8Array, at: number, end: number) => {
    if (end === 0 && at <= 5 && 5 < at + bytes.length) bytes[5 - at]! ^= 0x80;
  };
  for (const mostBytes of [1, 3, 100]) {
    const [a, b] = new Pipe({ corrupt, mostBytes, seed: 3 }).ends.map((end) => new Link(end));
    const given = numbered(10);
    const got = new Uint8Array(10);
    await Promise.all([a!.writeFully(given, "x"), b!.readFully(got, "x")]);
    const wanted = numbered(10);
    wanted[5]! ^= 0x80;
    assertEquals([got, given], [wanted, numbered(10)]);
  }
});

Deno.test("pipe: whatever its seed, what arrives is a start of what was sent", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        seed: fc.nat(),
        budget: fc.integer({ min: 1, max: 64 }),
        mostBytes: fc.integer({ min: 1, max: 64 }),
        dieAfter: fc.option(fc.nat(400), { nil: undefined }),
      }),
      fc.nat(400),
      async ({ dieAfter, ...options }, length) => {
        const pipe = new Pipe(dieAfter === undefined ? options : { ...options, dieAfter });
        const [a, b] = pipe.ends.map((end) => new Link(end));
        const got: number[] = [];
        const receiving = (async () => {
          const into = new Uint8Array(50);
          for (;;) {
            const count = await b!.readSome(into, "it");
            if (count === null) return "end";
            got.push(...into.subarray(0, count));
          }
        })().catch((error) => error);
        const sending = a!.writeFully(numbered(length), "it").then(() => a!.close()).catch((e) =>
          e
        );
        const outcomes = await Promise.all([receiving, sending]);
        assertEquals(got, [...numbered(length)].slice(0, got.length));
        const dies = dieAfter !== undefined && dieAfter <= length;
        if (!dies) assertEquals([outcomes, got.length], [["end", undefined], length]);
        else if (length > 0) {
          assertEquals(outcomes[0] instanceof TransportError, true);
          assertEquals(outcomes[0].code, "closed");
        }
      },
    ),
  );
});

Deno.test("pipe: bytes come late but in order, and the end after them", async () => {
  const delays = [20, 1, 0, 5];
  const [a, b] = new Pipe({ delay: () => delays.shift()! }).ends;
  for (const piece of [[1], [2], [3]]) await a.write(Uint8Array.from(piece));
  await a.closeWrite();
  const into = new Uint8Array(8);
  const seen: number[] = [];
  for (let count = await b.read(into); count !== null; count = await b.read(into)) {
    seen.push(...into.subarray(0, count));
  }
  assertEquals(seen, [1, 2, 3]);
  assertEquals(delays, []);
  a.close();
  b.close();
});

Deno.test("pipe: a held direction is silent until it is let go, the other one goes on", async () => {
  const pipe = new Pipe();
  const [a, b] = pipe.ends;
  pipe.hold(0, true);
  await a.write(numbered(3));
  let read: number | null | undefined;
  const reading = b.read(new Uint8Array(8)).then((count) => read = count);
  assertEquals(await b.write(numbered(2)), 2);
  assertEquals(await a.read(new Uint8Array(8)), 2);
  assertEquals(read, undefined);
  pipe.hold(0, false);
  assertEquals(await reading, 3);
});

Deno.test("pipe: with resets, closing with unread bytes breaks it; without, what was sent arrives", async () => {
  for (const resets of [false, true]) {
    const [a, b] = new Pipe({ resets, names: ["left", "right"] }).ends;
    assertEquals([a.peer, b.peer], ["right", "left"]);
    await b.write(numbered(5));
    await a.write(numbered(4));
    a.close();
    const into = new Uint8Array(8);
    if (resets) await assertRejects(() => b.read(into), Error, "Connection reset");
    else assertEquals([await b.read(into), await b.read(into)], [4, null]);
  }
});

Deno.test("pipe: what is under way when it dies or closes is lost, and leaves no timer", async () => {
  const pipe = new Pipe({ delay: () => 60_000 });
  const [a, b] = pipe.ends;
  await a.write(numbered(5));
  pipe.kill();
  await assertRejects(() => b.read(new Uint8Array(8)), Error, "Connection reset");
  const [c, d] = new Pipe({ delay: () => 60_000 }).ends;
  await c.write(numbered(5));
  c.close();
  d.close();
  // The test's own watch over timers does the rest.
});
