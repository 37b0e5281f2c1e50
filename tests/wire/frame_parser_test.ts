// The parser that follows a frame's headers while its bytes arrive.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import type { WireErrorCode } from "../../wire/errors.ts";
import { DEFAULT_FRAME_CEILING, MAX_TENSORS } from "../../wire/limits.ts";
import {
  decodeFrame,
  encodeFrame,
  expectWhole,
  FRAME_HEADER_BYTES,
  FRAME_MAGIC,
  type FrameHeader,
  FrameParser,
} from "../../wire/round_frame.ts";
import { bad, good, SALT, unhex, vectorBytes } from "../vectors.ts";
import { arrivals, frames } from "./arbitraries.ts";
import { concat, expectLittleMemory, inSharedMemory, refused } from "./torture.ts";

const CEILING = DEFAULT_FRAME_CEILING;
const MiB = 1024 ** 2;

/** How many bytes must have arrived for the headers to be complete. */
function headersEnd(header: FrameHeader): number {
  return header.tensors.at(-1)?.at ?? FRAME_HEADER_BYTES;
}

/** The start of a frame, unsigned. */
function start(count: number, kind = 0, weight = 1): Uint8Array {
  const bytes = new Uint8Array(FRAME_HEADER_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, FRAME_MAGIC, true);
  view.setUint32(4, count, true);
  view.setUint8(8, kind);
  view.setFloat64(9, weight, true);
  return bytes;
}

/** A tensor's header. */
function tensor(shape: number[], nbytes: bigint, dtype = 0): Uint8Array {
  const bytes = new Uint8Array(10 + 4 * shape.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, dtype);
  view.setUint8(1, shape.length);
  shape.forEach((dim, i) => view.setUint32(2 + 4 * i, dim, true));
  view.setBigUint64(2 + 4 * shape.length, nbytes, true);
  return bytes;
}

Deno.test("parser: fed byte by byte it knows every vector's headers with their last byte", () => {
  const vectors = good("round_frame");
  assertEquals(vectors.length, 17);
  for (const { file, salt } of vectors) {
    const bytes = vectorBytes(file);
    const wanted = decodeFrame(bytes, unhex(salt!), CEILING);
    for (const frame of [bytes, inSharedMemory(bytes)]) {
      const parser = new FrameParser(CEILING);
      for (let received = 0; received <= bytes.length; received++) {
        const header = parser.advance(frame, received);
        if (received < headersEnd(wanted)) assertEquals(header, undefined, `${file}, ${received}`);
        else assertEquals(header, wanted, `${file} at ${received}`);
      }
    }
  }
});

Deno.test("parser: fed byte by byte it refuses at the first impossible byte", () => {
  const outcomes: Record<string, number | "headers possible" | "headers incomplete"> = {};
  for (const { file } of bad("round_frame")) {
    const bytes = vectorBytes(file);
    const parser = new FrameParser(CEILING);
    outcomes[file] = "headers incomplete";
    for (let received = 0; received <= bytes.length; received++) {
      try {
        if (parser.advance(bytes, received)) outcomes[file] = "headers possible";
      } catch {
        refused(() => parser.advance(bytes, received), file);
        outcomes[file] = received;
        break;
      }
    }
  }
  // Where the headers say nothing impossible it is the length, the tag or the fold that refuses.
  assertEquals(outcomes, {
    "bad_round_tag_flipped.bin": "headers possible",
    "bad_round_payload_flipped.bin": "headers incomplete",
    "bad_round_magic.bin": 4,
    "bad_round_truncated.bin": "headers possible",
    "bad_round_tensor_count.bin": 17,
    "bad_round_kind.bin": 17,
    "bad_round_weight_nan.bin": 17,
    "bad_round_weight_inf.bin": 17,
    "bad_round_weight_negative.bin": 17,
    "bad_round_huge_nbytes.bin": 31,
    "bad_round_shape_nbytes.bin": "headers possible",
    "bad_round_dtype.bin": "headers possible",
  });
});

Deno.test("parser: random splits, moving buffers, bytes that have not arrived yet", () => {
  const cases = frames.chain((frame) => {
    const bytes = encodeFrame(frame.kind, frame.weight, frame.tensors, SALT);
    return fc.record({
      bytes: fc.constant(bytes),
      steps: arrivals(bytes.length),
      junk: fc.uint8Array({ minLength: 1, maxLength: 5 }),
    });
  });
  fc.assert(
    fc.property(cases, ({ bytes, steps, junk }) => {
      const wanted = decodeFrame(bytes, SALT, CEILING);
      const parser = new FrameParser(CEILING);
      for (const received of steps) {
        // Each time other memory, in which what has not arrived is whatever was there before.
        const memory = Uint8Array.from(
          { length: bytes.length + 3 },
          (_, i) => junk[i % junk.length]!,
        );
        memory.set(bytes.subarray(0, received));
        const header = parser.advance(memory, received);
        memory.fill(0xff);
        assertEquals(header, received < headersEnd(wanted) ? undefined : wanted);
      }
    }),
    { numRuns: 200 },
  );
});

Deno.test("parser: bytes that were read are not read again", () => {
  const bytes = vectorBytes("round_model_a.bin");
  const wanted = decodeFrame(bytes, SALT, CEILING);
  for (let first = FRAME_HEADER_BYTES; first <= bytes.length; first++) {
    const parser = new FrameParser(CEILING);
    const memory = bytes.slice();
    const early = parser.advance(memory, first);
    // Everything up to the last whole header that had arrived is overwritten.
    const read = wanted.tensors.filter(({ at }) => at <= first);
    memory.fill(0xff, 0, read.at(-1)?.at ?? FRAME_HEADER_BYTES);
    assertEquals(parser.advance(memory, bytes.length), wanted, `first ${first} bytes`);
    if (early) assertEquals(early, wanted);
  }
});

Deno.test("parser: reset starts over, and an earlier header keeps its values", () => {
  const parser = new FrameParser(CEILING);
  const memory = new Uint8Array(20_000);
  const kept: { header: FrameHeader; wanted: FrameHeader }[] = [];
  for (const { file, salt } of [...good("round_frame"), ...good("round_frame").reverse()]) {
    const bytes = vectorBytes(file);
    parser.reset();
    memory.fill(0xaa);
    memory.set(bytes);
    // Left in the middle of a header first, as when its sender breaks off.
    parser.advance(memory, Math.min(20, bytes.length));
    parser.reset();
    const header = parser.advance(memory, bytes.length);
    kept.push({ header: header!, wanted: decodeFrame(bytes, unhex(salt!), CEILING) });
  }
  memory.fill(0);
  for (const { header, wanted } of kept) assertEquals(header, wanted);
});

Deno.test("parser: reset forgets the bytes of data counted so far", () => {
  const frame = concat(start(1), tensor([4], 16n));
  const parser = new FrameParser(16);
  for (let i = 0; i < 3; i++) {
    assertEquals(parser.advance(frame, frame.length)?.tensors.length, 1);
    parser.reset();
  }
});

Deno.test("parser: each field refuses what is impossible, by name", () => {
  const cases: [Uint8Array, WireErrorCode, RegExp][] = [
    [Uint8Array.of(0xf2, 0x17, 0x0d, 0xf1), "magic", /magic 0xf10d17f2, expected 0xf10d17f1/],
    [Uint8Array.of(0x47, 0x45, 0x54, 0x20), "magic", /magic 0x20544547/],
    [start(MAX_TENSORS + 1), "tensor-count", /tensor count 65537/],
    [start(0xffff_ffff), "tensor-count", /tensor count 4294967295/],
    [start(0, 2), "kind", /unknown round kind 2, expected 0 or 1/],
    [start(0, 255), "kind", /unknown round kind 255/],
    [start(0, 0, NaN), "weight", /weight NaN/],
    [start(0, 0, Infinity), "weight", /weight Infinity/],
    [start(0, 0, -Infinity), "weight", /weight -Infinity/],
    [start(0, 0, -5e-324), "weight", /weight -5e-324/],
    [concat(start(1), tensor([], 1025n)), "ceiling", /tensor 0 brings the data to 1025 bytes/],
    [concat(start(1), tensor([], 2n ** 32n)), "ceiling", /to 4294967296 bytes/],
    [concat(start(1), tensor([], 2n ** 63n)), "ceiling", /tensor 0/],
    [concat(start(1), tensor([], 2n ** 64n - 1n)), "ceiling", /tensor 0/],
    [
      concat(start(3), tensor([], 1n), Uint8Array.of(0), tensor([3], 1024n)),
      "ceiling",
      /tensor 1 brings the data to 1025 bytes, above the frame ceiling of 1024/,
    ],
  ];
  for (const [bytes, code, message] of cases) {
    refused(
      () => new FrameParser(1024).advance(bytes, bytes.length),
      `${message}`,
      code,
      message,
    );
  }
  // Zero and negative zero are masses; the smallest and largest are too.
  for (const weight of [0, -0, 5e-324, Number.MAX_VALUE]) {
    const header = new FrameParser(1024).advance(start(0, 1, weight), FRAME_HEADER_BYTES);
    assert(Object.is(header?.weight, weight));
  }
});

Deno.test("parser: a length that does not fit the headers, or a wrong tag, is named", () => {
  const header = decodeFrame(vectorBytes("round_model_a.bin"), SALT, CEILING);
  const refusals: [FrameHeader | undefined, number, boolean | undefined, WireErrorCode, RegExp][] =
    [
      [undefined, 16, undefined, "truncated", /its 16 bytes end inside its headers/],
      [undefined, 24, false, "truncated", /its 24 bytes end inside its headers/],
      [undefined, 25, true, "truncated", /its 25 bytes end inside its headers/],
      [undefined, 25, false, "mac", /MAC does not match.*its 25 bytes end inside its headers/],
      [header, 110, undefined, "truncated", /truncated: 110 bytes came, its headers need 111/],
      [header, 110, false, "truncated", /truncated: 110 bytes came/],
      [header, 112, undefined, "trailing", /112 bytes came, its headers need 111/],
      [header, 111, false, "mac", /MAC does not match/],
    ];
  for (const [known, length, authentic, code, message] of refusals) {
    refused(() => expectWhole(known, length, authentic), `${message}`, code, message);
  }
  expectWhole(header, 111);
  expectWhole(header, 111, true);
});

Deno.test("parser: what is announced costs nothing before it arrives", () => {
  const oneGiB = concat(start(1), tensor([2 ** 28], 2n ** 30n));
  const tooMuch = vectorBytes("bad_round_huge_nbytes.bin");
  const manyTensors = start(MAX_TENSORS);
  expectLittleMemory(MiB, () => {
    const header = new FrameParser(CEILING).advance(oneGiB, oneGiB.length);
    assertEquals(header?.length, oneGiB.length + 2 ** 30 + 8);
  });
  expectLittleMemory(MiB, () => {
    refused(() => decodeFrame(oneGiB, SALT, CEILING), "1 GiB announced", "truncated");
  });
  expectLittleMemory(MiB, () => {
    refused(() => decodeFrame(tooMuch, SALT, CEILING), "above the ceiling", "ceiling");
  });
  // An array with room for 65,536 headers would be more than this.
  expectLittleMemory(MiB / 4, () => {
    assertEquals(new FrameParser(CEILING).advance(manyTensors, manyTensors.length), undefined);
  });
});

Deno.test("parser: 65,536 tensors in pieces", () => {
  const tensors = Array.from({ length: MAX_TENSORS }, (_, i) => ({
    shape: new Array(i % 4).fill(1),
    values: Float32Array.of(i),
  }));
  const bytes = encodeFrame("model", 1, tensors, SALT);
  const parser = new FrameParser(CEILING);
  let header: FrameHeader | undefined;
  for (let received = 0; header === undefined; received += 97) {
    assert(received < bytes.length + 97, "the headers never ended");
    header = parser.advance(bytes, Math.min(received, bytes.length));
  }
  assertEquals(header.tensors.length, MAX_TENSORS);
  expectWhole(header, bytes.length);
});
