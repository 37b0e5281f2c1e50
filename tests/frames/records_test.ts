// Records that carry frames, on plain channels and on sealed ones.
import { assertEquals, AssertionError, assertStringIncludes } from "@std/assert";
import { RecordReader, RecordSealer, RecordWriter } from "../../frames/records.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { TransportError } from "../../transport/connection.ts";
import { Link } from "../../transport/link.ts";
import { Pipe } from "../../transport/pipe.ts";
import { WireError } from "../../wire/errors.ts";
import { encodeRecord, RECORD_HEADER_BYTES, RECORD_SIGNED_BYTES } from "../../wire/mux.ts";
import { Seals } from "../../wire/seal.ts";
import { LoopTagger } from "../../workers/tagger.ts";
import { frameOf } from "../cluster/raw.ts";
import { soon } from "../cluster/waiting.ts";
import { hex, SESSION_SALT as SALT, unhex } from "../vectors.ts";

const CEILING = 4096;
const KEY = unhex("00112233445566778899aabbccddeeff");
const tagger = new LoopTagger(SALT);
const arena = new Arena();
const ONE = frameOf([[1, 2, 3]]);
const OTHER = frameOf([[4, 5, 6]]);

/** A record as it is signed in its slot; its tag is left out unless it is for a plain channel. */
async function signed(frame: Uint8Array, plain: boolean): Promise<Uint8Array> {
  const slot = new FrameSlot(arena);
  slot.reserve(frame.length);
  const sealer = new RecordSealer(slot, { kind: "host_frame", tagger, plain });
  slot.frame.set(frame.subarray(0, -8));
  await sealer.finish();
  const record = slot.record.slice();
  slot.release();
  return record;
}

/** The bytes of records on a channel. */
async function written(records: readonly Uint8Array[], sealed: boolean): Promise<Uint8Array> {
  const bytes: number[] = [];
  const { ends } = new Pipe({ corrupt: (chunk, _, end) => end === 0 && bytes.push(...chunk) });
  const link = new Link(ends[0]);
  const writer = new RecordWriter(link, SALT);
  if (sealed) writer.addSeals(new Seals(KEY, "up"));
  for (const record of records) await soon("a record leaves", writer.frame(record, "a frame"));
  link.close();
  return Uint8Array.from(bytes);
}

/** What a reader makes of the bytes: the values of every frame up to the end. */
async function read(bytes: Uint8Array, sealed: boolean): Promise<number[][][]> {
  const { ends } = new Pipe();
  const [peer, link] = ends.map((end) => new Link(end)) as [Link, Link];
  const reader = new RecordReader(link, { salt: SALT, tagger, ceiling: CEILING, recordMs: 10_000 });
  if (sealed) reader.expectSeals(new Seals(KEY, "up"));
  const slot = new FrameSlot(arena);
  const frames: number[][][] = [];
  try {
    await peer.writeFully(bytes, "the bytes");
    await ends[0].closeWrite();
    for (;;) {
      const record = await soon("a record", reader.next("host_frame", () => slot));
      if (record === null) return frames;
      if (record.kind !== "frame") throw new AssertionError(`a ${record.kind} came`);
      // Nothing is verified here, so that only the reader can refuse.
      const bytes = slot.frame.slice();
      frames.push(
        record.header.tensors.map(({ at, nbytes }) => [
          ...new Float32Array(bytes.slice(at, at + nbytes).buffer),
        ]),
      );
    }
  } finally {
    link.close();
    peer.close();
    slot.release();
  }
}

/** Reads bytes that must be refused; gives the reason. */
async function refusal(bytes: Uint8Array, sealed: boolean, what: string): Promise<string> {
  const frames = await read(bytes, sealed).catch((error) => error);
  if (frames instanceof WireError || frames instanceof TransportError) return frames.message;
  throw new AssertionError(`${what}: ${JSON.stringify(frames) ?? frames}`);
}

Deno.test("records: on a plain channel they are those of the wire, whoever has signed them", async () => {
  const expected = encodeRecord("host_frame", 0, ONE, SALT);
  for (const plain of [true, false]) {
    const record = await signed(ONE, plain);
    assertEquals(hex(record) === hex(expected), plain);
    const bytes = await written([record], false);
    assertEquals(hex(bytes), hex(expected));
    assertEquals(await read(bytes, false), [[[1, 2, 3]]]);
  }
});

Deno.test("records: on a sealed channel a seal stands where the tag was, and nothing else differs", async () => {
  const [first, second] = [await signed(ONE, false), await signed(OTHER, true)];
  const bytes = await written([first, second, first], true);
  assertEquals(bytes.length, 2 * first.length + second.length);
  const seal = (at: number) =>
    hex(bytes.subarray(at + RECORD_SIGNED_BYTES, at + RECORD_HEADER_BYTES));
  assertEquals(seal(0) === seal(first.length + second.length), false);
  const start = first.length + RECORD_HEADER_BYTES;
  assertEquals(hex(bytes.subarray(start, start + OTHER.length)), hex(OTHER));
  assertEquals(await read(bytes, true), [[[1, 2, 3]], [[4, 5, 6]], [[1, 2, 3]]]);
});

Deno.test("records: no bit of a record with a frame may change, sealed or not", async () => {
  for (const sealed of [true, false]) {
    const bytes = await written([await signed(ONE, !sealed)], sealed);
    for (let bit = 0; bit < 8 * bytes.length; bit++) {
      const flipped = bytes.slice();
      flipped[bit >> 3]! ^= 1 << (bit & 7);
      await refusal(flipped, sealed, `sealed ${sealed}, bit ${bit}`);
    }
  }
});

Deno.test("records: cut anywhere, a record with a frame is refused", async () => {
  const bytes = await written([await signed(ONE, false)], true);
  for (let length = 1; length < bytes.length; length++) {
    await refusal(bytes.subarray(0, length), true, `cut at ${length}`);
  }
});

Deno.test("records: a good frame in another's sealed record is refused, and so is another order", async () => {
  const records = [await signed(ONE, false), await signed(OTHER, false)];
  const bytes = await written(records, true);
  const middle = records[0]!.length;
  const header = bytes.subarray(0, RECORD_HEADER_BYTES);
  const reason = "checking a seal";
  const swapped = Uint8Array.from([...header, ...OTHER]);
  assertStringIncludes(await refusal(swapped, true, "another frame"), reason);
  const late = Uint8Array.from([...bytes.subarray(middle), ...bytes.subarray(0, middle)]);
  assertStringIncludes(await refusal(late, true, "another order"), reason);
  // A plain record has no place in a sealed channel, nor the other way round.
  const plain = encodeRecord("host_frame", 0, ONE, SALT);
  assertStringIncludes(await refusal(plain, true, "a plain record"), reason);
  assertStringIncludes(await refusal(bytes, false, "a sealed record"), "MAC");
});
