// A rank's port at the end of a bad connection.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import { NonFiniteScreen } from "../../fold/nonfinite.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { TERMS } from "../../serve/terms.ts";
import { Link } from "../../transport/link.ts";
import { Pipe } from "../../transport/pipe.ts";
import { decodeRefusal } from "../../wire/refusal.ts";
import { soon } from "../cluster/waiting.ts";
import { type RankHost, RankPort } from "../../relay/rank_port.ts";
import { encodeHandshake } from "../../wire/handshake.ts";
import { LoopTagger } from "../../workers/tagger.ts";
import { frameOf, prefixed } from "../cluster/raw.ts";
import { converse, type Trouble, troubles } from "../transport/peer.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";

const frames = [frameOf([[1, 2, 3]]), frameOf([[4, 5], [6]], { weight: 2 }), frameOf([])];
const said = Uint8Array.from([
  ...encodeHandshake({ version: 2, rank: 1, worldSize: 2 }),
  ...frames.flatMap((frame) => [...prefixed(frame)]),
]);
const arena = new Arena();
const screen = new NonFiniteScreen(arena, "refuse");

/** A host, and what it sees. Each round is over as soon as the frame is there. */
function hostWith(slot: FrameSlot) {
  const seen = { entered: 0, frames: [] as string[], left: [] as [boolean, string][] };
  const host: RankHost = {
    terms: TERMS,
    salt: SALT,
    tagger: new LoopTagger(SALT),
    ceiling: 65_536,
    screen,
    frameMs: 10_000,
    admit({ rank }, port) {
      seen.entered++;
      port.enter(rank);
      return Promise.resolve();
    },
    slot: () => slot,
    begins: () => {},
    arriving: () => {},
    altered: () => {},
    maySend: () => true,
    deliver: (_, header) => seen.frames.push(hex(slot.frame.subarray(0, header.length))),
    left: (_, clean, reason) => seen.left.push([clean, reason]),
  };
  return { host, seen };
}

/** What a host sees of one connection. */
async function serve(trouble: Trouble) {
  const slot = new FrameSlot(arena);
  const { host, seen } = hostWith(slot);
  let done = false;
  await converse(said, trouble, async (end) => {
    const port = new RankPort(end, host);
    port.done.then(() => done = true);
    await port.run();
  });
  slot.release();
  assert(done, "the port is not done");
  return seen;
}

const smooth: Trouble = {
  seed: 1,
  budget: 4096,
  mostBytes: 4096,
  dieAfter: undefined,
  flip: undefined,
};

Deno.test("rank port: a good conversation, whatever the chunks", async () => {
  for (const mostBytes of [1, 2, 5, 4096]) {
    for (const budget of [1, 7, 4096]) {
      const { entered, frames: got, left } = await serve({ ...smooth, mostBytes, budget });
      assertEquals([entered, got], [1, frames.map(hex)]);
      assertEquals(left, [[true, "it closed its connection"]]);
    }
  }
});

Deno.test("rank port: on a bad connection it ends, lets nothing wrong in, and says who left once", async () => {
  await fc.assert(
    fc.asyncProperty(troubles(said.length), async (trouble) => {
      const { entered, frames: got, left } = await serve(trouble);
      assertEquals(got, frames.map(hex).slice(0, got.length));
      assertEquals(left.length, 1);
      const { dieAfter, flip } = trouble;
      // 8 bytes of answer go the other way.
      const dies = dieAfter !== undefined && dieAfter <= said.length + 8;
      if (flip === undefined && !dies) assertEquals([entered, got.length], [1, 3]);
      // The handshake carries no tag: whoever is let in is known by the first frame only.
      if (flip !== undefined && flip >> 3 >= 16) {
        // The frame with the flipped bit, and all behind it, are not there.
        let whole = 16;
        const before = frames.filter((frame) => (whole += 4 + frame.length) <= flip >> 3).length;
        assert(got.length <= before, `${got.length} frames, at most ${before} were whole`);
        if (dieAfter === undefined) assertEquals(got.length, before);
        assert(!left[0]![0], "a bad frame passes for a clean end");
      }
    }),
    { numRuns: 400 },
  );
});

/** The end of a pipe after a good handshake and half a frame, and the port at the other one. */
async function halfway(slot: FrameSlot, budget: number) {
  const pipe = new Pipe({ budget });
  const { host, seen } = hostWith(slot);
  const peer = new Link(pipe.ends[0]);
  const port = new RankPort(pipe.ends[1], host);
  const running = port.run();
  await peer.writeFully(said.subarray(0, 16), "the handshake");
  await peer.readFully(new Uint8Array(8), "the answer");
  await peer.writeFully(said.subarray(16, 40), "half a frame");
  return { peer, port, running, seen };
}

/** What is left to read, as the reason of a refusal. */
async function reasonFrom(peer: Link): Promise<string | undefined> {
  const all: number[] = [];
  const into = new Uint8Array(64);
  for (let n = await peer.readSome(into, "it"); n !== null; n = await peer.readSome(into, "it")) {
    all.push(...into.subarray(0, n));
  }
  return decodeRefusal(Uint8Array.from(all), SALT);
}

Deno.test("rank port: who is refused in the middle of a frame reads why to the end", async () => {
  // So small a pipe holds neither the reason nor the rest of the frame at once.
  const { peer, port, running, seen } = await halfway(new FrameSlot(arena), 8);
  const text = "it was too late, as it often is; ".repeat(30);
  const refusing = port.refuse(text);
  const writing = peer.writeFully(said.subarray(40), "the rest");
  assertEquals(await soon("the reason", reasonFrom(peer)), text);
  await soon("the rest is swallowed", writing);
  peer.close();
  await soon("all ends", Promise.all([refusing, running, port.done]));
  assertEquals([seen.frames, seen.left], [[], [[false, text]]]);
});

Deno.test("rank port: a frame for which there is no room costs its sender the connection", async () => {
  class FullSlot extends FrameSlot {
    override reserve(): void {
      throw new RangeError("taking 43 bytes for a frame: there are none");
    }
  }
  const { peer, running, seen } = await halfway(new FullSlot(arena), 4096);
  const text = "making room for the frame of rank 1: taking 43 bytes for a frame: there are none";
  assertEquals(await soon("the reason", reasonFrom(peer)), text);
  peer.close();
  await soon("the port ends", running);
  assertEquals(seen.left, [[false, text]]);
});
