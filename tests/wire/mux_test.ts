// Records of the relay leg against the golden vectors, and against damage.
import { assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { decodeControl, encodeControl } from "../../wire/control.ts";
import { InvariantError, type WireErrorCode } from "../../wire/errors.ts";
import { DEFAULT_FRAME_CEILING, MAX_FRAME_BYTES } from "../../wire/limits.ts";
import { Tag64, tagsEqual } from "../../wire/mac.ts";
import {
  CHANNEL_MAGIC_BYTES,
  decodeChannelMagic,
  decodeRecord,
  decodeRecordHeader,
  encodeChannelMagic,
  encodeRecord,
  encodeRecordStart,
  RECORD_HEADER_BYTES,
  RECORD_SIGNED_BYTES,
} from "../../wire/mux.ts";
import { bad, good, SALT, unhex, type Vector, vectorBytes } from "../vectors.ts";
import { arrivals, recordKinds, salts, u32 } from "./arbitraries.ts";
import {
  amongOthers,
  concat,
  eachCut,
  eachFlip,
  expectLittleMemory,
  inSharedMemory,
  refused,
} from "./torture.ts";

const CEILING = DEFAULT_FRAME_CEILING;
const vectors = good("mux");

/** The payload that the index describes. */
function payloadOf(vector: Vector): Uint8Array {
  const { message, host, ranks, rank, payload, payload_hex } = vector;
  switch (message) {
    case "hello":
      return encodeControl({ type: message, host: host!, ranks: ranks! });
    case "hello_ack":
      return encodeControl({ type: message });
    case "rank_exit":
    case "declare_dead":
      return encodeControl({ type: message, rank: rank! });
    default:
      return payload_hex === undefined ? vectorBytes(payload!) : unhex(payload_hex);
  }
}

Deno.test("channel magic: the vector decodes and encodes back; damage is refused", () => {
  const [vector, ...more] = good("channel_magic");
  assertEquals(more, []);
  const bytes = vectorBytes(vector!.file);
  decodeChannelMagic(bytes);
  decodeChannelMagic(inSharedMemory(bytes));
  assertEquals(encodeChannelMagic(), bytes);
  eachCut(bytes, (cut) => {
    refused(() => decodeChannelMagic(cut), `${cut.length}`, "truncated", /channel magic/);
  });
  eachFlip(bytes, (flipped, bit) => {
    refused(() => decodeChannelMagic(flipped), `bit ${bit}`, "magic", /channel magic: 0x/);
  });
  const longer = new Uint8Array(CHANNEL_MAGIC_BYTES + 1);
  longer.set(bytes);
  refused(() => decodeChannelMagic(longer), "one byte more");
  assertEquals(bad("channel_magic").length, 0);
});

Deno.test("record: vectors decode to the index's values", () => {
  assertEquals(vectors.length, 9);
  for (const vector of vectors) {
    const { file, record, message, host, ranks, rank } = vector;
    const bytes = vectorBytes(file);
    for (const view of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
      const { header, payload } = decodeRecord(view, unhex(vector.salt!), CEILING);
      assertEquals(header.kind, record, file);
      assertEquals(header.rank, record === "data" ? rank : 0, file);
      assertEquals(header.length, payload.length, file);
      assertEquals(Uint8Array.from(payload), Uint8Array.from(payloadOf(vector)), file);
      if (record !== "control") continue;
      assertEquals(decodeControl(payload), {
        type: message,
        ...(host === undefined ? {} : { host, ranks }),
        ...(rank === undefined ? {} : { rank }),
      }, file);
    }
  }
});

Deno.test("record: vectors encode back, whole and header first into used memory", () => {
  for (const vector of vectors) {
    const { file, record, rank } = vector;
    const salt = unhex(vector.salt!);
    const bytes = vectorBytes(file);
    const payload = payloadOf(vector);
    const header = {
      kind: record!,
      rank: record === "data" ? rank! : 0,
      length: payload.length,
    };
    assertEquals(encodeRecord(header.kind, header.rank, payload, salt), bytes, file);

    const used = new Uint8Array(RECORD_HEADER_BYTES).fill(0xee);
    encodeRecordStart(used, header);
    assertEquals(used.slice(RECORD_SIGNED_BYTES), new Uint8Array(8).fill(0xee));
    const tag = new Tag64(salt).update(used.subarray(0, RECORD_SIGNED_BYTES));
    for (const byte of payload) tag.update(Uint8Array.of(byte));
    used.set(tag.digest(), RECORD_SIGNED_BYTES);
    assertEquals(used, bytes.slice(0, RECORD_HEADER_BYTES), file);
  }
});

const REASONS: Record<string, [WireErrorCode, RegExp]> = {
  "MAC": ["mac", /\bMAC\b/],
  "version": ["version", /\bversion \d+, expected 1/],
  "unknown record kind": ["kind", /unknown record kind \d+/],
  "frame ceiling, before any such allocation": ["ceiling", /above the frame ceiling of \d+/],
};

Deno.test("record: bad vectors are refused with the reason of the index", () => {
  assertEquals(bad("mux").length, 4);
  for (const { file, error, salt } of bad("mux")) {
    const [code, words] = REASONS[error!]!;
    refused(() => decodeRecord(vectorBytes(file), unhex(salt!), CEILING), file, code, words);
    if (code === "mac") continue;
    // All but the tag are refused with the header alone, before any payload is read.
    const header = vectorBytes(file).subarray(0, RECORD_HEADER_BYTES);
    refused(() => decodeRecordHeader(header, CEILING), file, code, words);
  }
});

Deno.test("record: cut anywhere it is truncated, lengthened it has something behind it", () => {
  for (const { file, salt } of vectors) {
    const bytes = vectorBytes(file);
    eachCut(bytes, (cut) => {
      const what = `${file} cut at ${cut.length}`;
      const wanted = /came, expected/;
      refused(() => decodeRecord(cut, unhex(salt!), CEILING), what, "truncated", wanted);
      // Fed byte by byte, a header is known with its 25th byte and refused before.
      if (cut.length < RECORD_HEADER_BYTES) {
        refused(() => decodeRecordHeader(cut, CEILING), what, "truncated", wanted);
      } else {
        assertEquals(
          decodeRecordHeader(cut, CEILING),
          decodeRecordHeader(bytes, CEILING),
        );
      }
    });
    const longer = concat(bytes, Uint8Array.of(0));
    refused(() => decodeRecord(longer, unhex(salt!), CEILING), file, "trailing");
  }
});

Deno.test("record: every flipped bit is refused", () => {
  for (const { file, salt } of vectors) {
    const key = unhex(salt!);
    eachFlip(vectorBytes(file), (flipped, bit) => {
      const error = refused(() => decodeRecord(flipped, key, CEILING), `${file}, bit ${bit}`);
      if (bit < 32) assertEquals(error.code, "magic");
      else if (bit < 64) assertEquals(error.code, "version");
      else if (bit >= 72 && bit < 104) assertEquals(error.code, "mac", "the rank is signed");
      else if (bit >= 8 * RECORD_SIGNED_BYTES) assertEquals(error.code, "mac");
    });
  }
  eachFlip(SALT, (salt, bit) => {
    const bytes = vectorBytes("mux_hello.bin");
    refused(() => decodeRecord(bytes, salt, CEILING), `salt bit ${bit}`, "mac", /salts/);
  });
});

Deno.test("record: each field refuses what is impossible, by name", () => {
  const header = () => encodeRecord("data", 7, new Uint8Array(0), SALT);
  const cases: [number, number, WireErrorCode, RegExp][] = [
    [0, 0xd1, "magic", /magic 0xf10d17d1, expected 0xf10d17d0/],
    [4, 0, "version", /version 0, expected 1/],
    [4, 2, "version", /version 2, expected 1/],
    [8, 0, "kind", /unknown record kind 0, expected 1-4/],
    [8, 5, "kind", /unknown record kind 5, expected 1-4/],
    [8, 255, "kind", /unknown record kind 255/],
    [14, 4, "ceiling", /1024 bytes announced, above the frame ceiling of 1023/],
  ];
  for (const [at, value, code, message] of cases) {
    const bytes = header();
    bytes[at] = value;
    refused(() => decodeRecordHeader(bytes, 1023), `${message}`, code, message);
  }
});

Deno.test("record: a payload in the caller's memory is a view, and a header a value", () => {
  const bytes = vectorBytes("mux_data.bin");
  const { header, payload } = decodeRecord(bytes, SALT, CEILING);
  const rank = decodeRecord(vectorBytes("mux_rank_exit.bin"), SALT, CEILING).payload;
  const message = decodeControl(rank);
  bytes.fill(0);
  rank.fill(0);
  assertEquals(header, { kind: "data", rank: 7, length: 6 });
  assertEquals(payload, new Uint8Array(6), "documented: the payload is not copied");
  assertEquals(message, { type: "rank_exit", rank: 300 });
});

Deno.test("record: an announced length costs nothing before it arrives", () => {
  const bytes = vectorBytes("mux_broadcast.bin").slice(0, RECORD_HEADER_BYTES);
  encodeRecordStart(bytes, { kind: "broadcast", rank: 0, length: CEILING });
  expectLittleMemory(1024 ** 2, () => {
    refused(() => decodeRecord(bytes, SALT, CEILING), "a header alone", "truncated");
    assertEquals(decodeRecordHeader(bytes, CEILING).length, CEILING);
  });
  refused(() => decodeRecordHeader(bytes, CEILING - 1), "", "ceiling");
});

Deno.test("record: a length that 4 bytes cannot say is never written", () => {
  const into = new Uint8Array(RECORD_HEADER_BYTES);
  for (const length of [MAX_FRAME_BYTES + 1, 2 ** 32 + 5, -1]) {
    const start = () => encodeRecordStart(into, { kind: "broadcast", rank: 0, length });
    assertThrows(start, InvariantError, `${length}`);
  }
});

Deno.test("record: any values come back, whole and with the tag streamed over random pieces", () => {
  const records = fc.record({
    kind: recordKinds,
    rank: u32,
    payload: fc.uint8Array({ maxLength: 500 }),
    salt: salts,
  }).chain((record) => arrivals(record.payload.length).map((steps) => ({ ...record, steps })));
  fc.assert(
    fc.property(records, ({ kind, rank, payload, salt, steps }) => {
      const bytes = encodeRecord(kind, rank, payload, salt);
      const decoded = decodeRecord(bytes, salt, CEILING);
      assertEquals(decoded.header, { kind, rank, length: payload.length });
      assertEquals(decoded.payload, payload);

      const tag = new Tag64(salt).update(bytes.subarray(0, RECORD_SIGNED_BYTES));
      let from = 0;
      for (const to of steps) {
        tag.update(payload.subarray(from, to));
        from = to;
      }
      const received = bytes.subarray(RECORD_SIGNED_BYTES, RECORD_HEADER_BYTES);
      assertEquals(tagsEqual(tag.digest(), received), true);
    }),
    { numRuns: 200 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
    refused(() => decodeRecord(noise, SALT, CEILING), "noise");
  }));
});
