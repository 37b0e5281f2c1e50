import { assert, assertEquals } from "@std/assert";
import { TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { Pipe, type PipeOptions } from "../../transport/pipe.ts";
import { failure, pause, soon } from "../cluster/waiting.ts";

function links(options: PipeOptions = {}): { pipe: Pipe; here: Link; there: Link } {
  const pipe = new Pipe(options);
  return { pipe, here: new Link(pipe.ends[0]), there: new Link(pipe.ends[1]) };
}

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (text: string) => new TextEncoder().encode(text);

/** The code of the TransportError with which `promise` fails, whose text has `texts`. */
async function fails(promise: Promise<unknown>, ...texts: string[]): Promise<string> {
  const error = await failure("it", promise, ...texts);
  assert(error instanceof TransportError, `${error}`);
  return (error as TransportError).code;
}

Deno.test("link: whole reads and writes over one-byte chunks and a tiny budget", async () => {
  for (const options of [{ mostBytes: 1 }, { budget: 1 }, { budget: 3, mostBytes: 2 }, {}]) {
    const { here, there } = links(options);
    const got = new Uint8Array(26);
    const [, whole] = await Promise.all([
      here.writeFully(bytes("abcdefghijklmnopqrstuvwxyz"), "letters"),
      there.readFully(got, "letters"),
    ]);
    assertEquals([whole, text(got)], [true, "abcdefghijklmnopqrstuvwxyz"]);
    assertEquals([here.bytesOut, there.bytesIn, here.bytesIn], [26, 26, 0]);
    assertEquals(await there.readFully(new Uint8Array(0), "nothing"), true);
    await here.writeFully(new Uint8Array(0), "nothing");
  }
});

Deno.test("link: an end before the first byte is clean, later it is an error that says where", async () => {
  for (const sent of [0, 1, 7]) {
    const { here, there } = links({ mostBytes: 2 });
    await here.writeFully(new Uint8Array(sent), "a part");
    here.close();
    const read = there.readFully(new Uint8Array(8), "a record");
    if (sent === 0) assertEquals(await read, false);
    else {
      const code = await fails(
        read,
        `reading a record from pipe:0: the stream ended after ${sent} of 8 bytes`,
      );
      assertEquals(code, "closed");
    }
  }
});

Deno.test("link: a broken connection says what was being done, and how far it got", async () => {
  const { pipe, here, there } = links({ budget: 4 });
  const writing = fails(
    here.writeFully(new Uint8Array(10), "a frame"),
    "writing a frame to pipe:1, 8 of 10 bytes written: the connection broke",
  );
  await there.readFully(new Uint8Array(4), "a frame");
  await pause(1);
  pipe.kill();
  assertEquals(await writing, "closed");
  await fails(there.readFully(new Uint8Array(1), "a frame"), "reading a frame", "Connection reset");
});

Deno.test("link: closing here fails what is under way with the reason, once", async () => {
  const { here, there } = links();
  const reading = here.readSome(new Uint8Array(1), "a word");
  here.close(new TransportError("deadline", "enough"));
  here.close(new TransportError("closed", "too late"));
  assertEquals(await fails(reading, "enough"), "deadline");
  assertEquals(await fails(here.writeFully(bytes("x"), "a word"), "enough"), "deadline");
  assertEquals([here.ended, there.ended], [true, false]);
  assertEquals(await there.readFully(new Uint8Array(1), "a word"), false);
  const plain = links().here;
  plain.close();
  assertEquals(await fails(plain.readSome(new Uint8Array(1), "x"), "was closed here"), "ended");
});

Deno.test("link: a deadline closes, names the peer and the time, and leaves no timer", async () => {
  const { here, there } = links();
  assertEquals(await here.within(60_000, "a quick thing", () => Promise.resolve(5)), 5);
  await failure(
    "what the action throws",
    here.within(60_000, "a bad thing", () => Promise.reject(new Error("bad"))),
    /^bad$/,
  );
  assertEquals(here.ended, false);
  const code = await fails(
    here.within(20, "waiting for a word", () => here.readFully(new Uint8Array(1), "a word")),
    "waiting for a word: pipe:1 took longer than 20 ms",
  );
  assertEquals([code, here.ended], ["deadline", true]);
  assertEquals(await there.readFully(new Uint8Array(1), "a word"), false);
});

Deno.test("link: a last word arrives though the other end is in the middle of writing", async () => {
  const { here, there } = links({ budget: 16 });
  const reading = fails(here.readFully(new Uint8Array(1_000), "a frame"), "is being closed here");
  const writing = there.writeFully(new Uint8Array(9_000), "a frame");
  const closing = here.closeAfter(bytes("goodbye"), 5_000);
  assertEquals(here.closeAfter(bytes("again"), 5_000), closing);
  assertEquals(here.parting, closing);
  const word = new Uint8Array(7);
  assertEquals(await there.readFully(word, "a word"), true);
  assertEquals(text(word), "goodbye");
  await soon("the rest is read and thrown away", writing);
  assertEquals(await there.readFully(new Uint8Array(1), "more"), false);
  assertEquals(await reading, "ended");
  await fails(here.readSome(new Uint8Array(1), "x"), "is being closed here");
  await fails(here.writeFully(bytes("x"), "x"), "is being closed here");
  assertEquals(here.ended, false);
  there.close();
  await soon("it closes", closing);
  assertEquals(here.ended, true);
});

Deno.test("link: a last word to one who does not listen takes no longer than it may", async () => {
  const { here } = links({ budget: 4 });
  await soon("it gives up", here.closeAfter(new Uint8Array(100), 30), 5_000);
  assertEquals(here.ended, true);
  const deaf = links();
  await soon("it gives up", deaf.here.closeAfter(bytes("x"), 30), 5_000);
  assertEquals(deaf.here.ended, true);
  const broken = links();
  broken.pipe.kill();
  await soon("it closes at once", broken.here.closeAfter(bytes("x"), 60_000), 5_000);
});
