// Whole round frames against the golden vectors, and against damage.
import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import { InvariantError, type WireErrorCode } from "../../wire/errors.ts";
import { DEFAULT_FRAME_CEILING, MAX_FRAME_BYTES, MAX_TENSORS } from "../../wire/limits.ts";
import {
  decodeFrame,
  DTYPE_BF16,
  DTYPE_F32,
  elementCount,
  encodeFrame,
  encodeFrameHeaders,
  type FrameHeader,
  layoutFrame,
  sealFrame,
} from "../../wire/round_frame.ts";
import { bad, good, hex, SALT, unhex, type Vector, vectorBytes } from "../vectors.ts";
import { frames, type RandomFrame, salts } from "./arbitraries.ts";
import {
  amongOthers,
  concat,
  eachCut,
  eachFlip,
  inSharedMemory,
  refused,
  tryDecode,
} from "./torture.ts";

const CEILING = DEFAULT_FRAME_CEILING;
const vectors = good("round_frame");

function dataOf(frame: Uint8Array, header: FrameHeader, tensor: number): Uint8Array {
  const { at, nbytes } = header.tensors[tensor]!;
  return frame.subarray(at, at + nbytes);
}

function valuesOf(bytes: Uint8Array): Float32Array {
  return new Float32Array(bytes.slice().buffer);
}

function expectVector(vector: Vector, frame: Uint8Array, header: FrameHeader): void {
  const { file } = vector;
  const weight = new Uint8Array(8);
  new DataView(weight.buffer).setFloat64(0, header.weight, true);
  assertEquals(header.kind, vector.kind, file);
  assertEquals(hex(weight), vector.weight_f64le, file);
  assertEquals(header.length, vector.bytes, file);
  assertEquals(header.tensors.map(({ shape }) => shape), vector.tensors!.map((t) => t.shape), file);
  header.tensors.forEach((tensor, i) => {
    const { shape, f32le } = vector.tensors![i]!;
    assertEquals(tensor.dtype, DTYPE_F32);
    assertEquals(tensor.nbytes, 4 * elementCount(shape));
    if (f32le !== undefined) assertEquals(hex(dataOf(frame, header, i)), f32le, file);
  });
}

Deno.test("frame: vectors decode to the index's values", () => {
  assertEquals(vectors.length, 17);
  for (const vector of vectors) {
    const bytes = vectorBytes(vector.file);
    for (const frame of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
      expectVector(vector, frame, decodeFrame(frame, unhex(vector.salt!), CEILING));
    }
  }
});

Deno.test("frame: vectors encode back to the same bytes, into fresh and into used memory", () => {
  for (const vector of vectors) {
    const salt = unhex(vector.salt!);
    const bytes = vectorBytes(vector.file);
    const header = decodeFrame(bytes, salt, CEILING);
    const tensors = vector.tensors!.map(({ shape, f32le }, i) => ({
      shape,
      values: valuesOf(f32le === undefined ? dataOf(bytes, header, i) : unhex(f32le)),
    }));
    assertEquals(encodeFrame(header.kind, header.weight, tensors, salt), bytes, vector.file);

    // The same into memory that is longer than the frame and holds an older one.
    const layout = layoutFrame(vector.tensors!.map(({ shape }) => ({ dtype: DTYPE_F32, shape })));
    assertEquals({ ...layout, kind: header.kind, weight: header.weight }, header, vector.file);
    const used = new Uint8Array(bytes.length + 9).fill(0xee);
    for (const memory of [used, inSharedMemory(used)]) {
      encodeFrameHeaders(memory, header);
      header.tensors.forEach(({ at }, i) => memory.set(dataOf(bytes, header, i), at));
      sealFrame(memory, header, salt);
      assertEquals(Uint8Array.from(memory.subarray(0, bytes.length)), bytes, vector.file);
      assertEquals(hex(memory.subarray(bytes.length)), "ee".repeat(9), "nothing behind the frame");
    }
  }
});

/** The index's reason, as a code and as the words that the error must contain. */
const REASONS: Record<string, [WireErrorCode, RegExp]> = {
  "MAC": ["mac", /\bMAC\b/],
  "magic": ["magic", /\bmagic 0x/],
  "truncated": ["truncated", /\btruncated\b/],
  "tensor count above 65536": ["tensor-count", /tensor count \d+ is above 65536/],
  "unknown round kind": ["kind", /unknown round kind \d+/],
  "weight not finite and non-negative": ["weight", /weight \S+ is not finite and non-negative/],
  "frame ceiling, before any such allocation": ["ceiling", /above the frame ceiling of \d+/],
};

Deno.test("frame: bad vectors are refused with the reason of the index", () => {
  const onTheWire = bad("round_frame").filter(({ error }) => !error!.includes("at the fold"));
  assertEquals(onTheWire.length, 10);
  for (const { file, error, salt } of onTheWire) {
    const [code, words] = REASONS[error!]!;
    const bytes = vectorBytes(file);
    for (const frame of [bytes, inSharedMemory(bytes), amongOthers(bytes)]) {
      refused(() => decodeFrame(frame, unhex(salt!), CEILING), file, code, words);
    }
  }
});

Deno.test("frame: what only the fold refuses passes the wire as it was sent", () => {
  const atTheFold = bad("round_frame").filter(({ error }) => error!.includes("at the fold"));
  const headers = atTheFold.map(({ file, salt }) => {
    const [tensor] = decodeFrame(vectorBytes(file), unhex(salt!), CEILING).tensors;
    return [file, tensor!.dtype, tensor!.shape, tensor!.nbytes];
  });
  assertEquals(headers, [
    ["bad_round_shape_nbytes.bin", DTYPE_F32, [3], 8],
    ["bad_round_dtype.bin", 7, [2], 8],
  ]);
});

Deno.test("frame: cut anywhere it is truncated, lengthened it has something behind it", () => {
  for (const { file, salt } of vectors) {
    const key = unhex(salt!);
    const bytes = vectorBytes(file);
    const headersEnd = decodeFrame(bytes, key, CEILING).tensors.at(-1)?.at ?? 0;
    eachCut(bytes, (cut) => {
      // Inside the headers a cut cannot be told from a changed byte: the error says both.
      const either = cut.length >= 25 && cut.length < headersEnd;
      const what = `${file} cut at ${cut.length}`;
      const code = either ? "mac" : "truncated";
      refused(() => decodeFrame(cut, key, CEILING), what, code, /truncated/);
    });
    const longer = concat(bytes, Uint8Array.of(0));
    refused(() => decodeFrame(longer, key, CEILING), file, "trailing", /bytes came/);
    const twice = concat(bytes, bytes);
    refused(() => decodeFrame(twice, key, CEILING), file, "trailing");
  }
});

Deno.test("frame: a signed frame that ends inside its headers is truncated", () => {
  const headers = layoutFrame([{ dtype: DTYPE_F32, shape: [2, 3] }]);
  const bytes = new Uint8Array(headers.length);
  encodeFrameHeaders(bytes, headers);
  const short = bytes.slice(0, 30);
  sealFrame(short, { ...headers, length: 30 }, SALT);
  const message = /truncated: its 30 bytes end inside its headers/;
  refused(() => decodeFrame(short, SALT, CEILING), "30 bytes", "truncated", message);
});

Deno.test("frame: every flipped bit is refused", () => {
  for (const { file, salt, bytes: length } of vectors) {
    const key = unhex(salt!);
    eachFlip(
      vectorBytes(file),
      (flipped, bit) => {
        const error = refused(() => decodeFrame(flipped, key, CEILING), `${file}, bit ${bit}`);
        if (bit < 32) assertEquals(error.code, "magic");
        if (bit >= 8 * (length - 8)) assertEquals(error.code, "mac");
      },
      length < 1_000,
    );
  }
});

Deno.test("frame: another salt does not open it", () => {
  const bytes = vectorBytes("round_model_a.bin");
  eachFlip(SALT, (salt, bit) => {
    refused(() => decodeFrame(bytes, salt, CEILING), `salt bit ${bit}`, "mac", /salts/);
  });
});

Deno.test("frame: the ceiling counts the data of all tensors together", () => {
  const tensor = { shape: [4], values: new Float32Array(4) };
  const bytes = encodeFrame("model", 1, [tensor, tensor], SALT);
  assertEquals(decodeFrame(bytes, SALT, 32).tensors.length, 2);
  refused(
    () => decodeFrame(bytes, SALT, 31),
    "",
    "ceiling",
    /tensor 1 brings the data to 32 bytes/,
  );
  refused(
    () => decodeFrame(bytes, SALT, 15),
    "",
    "ceiling",
    /tensor 0 brings the data to 16 bytes/,
  );
});

Deno.test("frame: a scalar, a one-element vector and a zero-element tensor are three things", () => {
  const encode = (shape: number[]) =>
    encodeFrame("model", 1, [{ shape, values: new Float32Array(elementCount(shape)) }], SALT);
  const [scalar, one, none] = [[], [1], [0]].map((shape) => {
    const [tensor] = decodeFrame(encode(shape), SALT, CEILING).tensors;
    assertEquals(tensor!.shape, shape);
    return tensor!.nbytes;
  });
  assertEquals([scalar, one, none], [4, 4, 0]);
  assert(hex(encode([])) !== hex(encode([1])));
});

Deno.test("frame: 65,536 tensors pass, one more is refused", () => {
  const tensors = Array.from({ length: MAX_TENSORS }, (_, i) => ({
    shape: i % 3 === 0 ? [] : [i % 3 - 1],
    values: Float32Array.from({ length: i % 3 === 1 ? 0 : 1 }, () => i),
  }));
  const bytes = encodeFrame("control", 0, tensors, SALT);
  const header = decodeFrame(bytes, SALT, CEILING);
  assertEquals(header.tensors.length, MAX_TENSORS);
  const last = header.tensors.length - 1;
  assertEquals(header.tensors[last]!.shape, []);
  assertEquals(valuesOf(dataOf(bytes, header, last)), Float32Array.of(last));

  const view = new DataView(bytes.buffer);
  view.setUint32(4, MAX_TENSORS + 1, true);
  sealFrame(bytes, header, SALT);
  const message = /tensor count 65537 is above 65536/;
  refused(() => decodeFrame(bytes, SALT, CEILING), "65,537 tensors", "tensor-count", message);
});

Deno.test("frame: 255 dims pass, of ones, of the largest dims, and of a zero among them", () => {
  const largest = 0xffff_ffff;
  const cases: [number[], number, number][] = [
    [new Array(255).fill(1), 4, 1],
    [new Array(255).fill(largest), 0, Infinity],
    [[...new Array(254).fill(largest), 0], 0, 0],
    [[0, ...new Array(254).fill(largest)], 0, 0],
  ];
  for (const [shape, nbytes, elements] of cases) {
    assertEquals(elementCount(shape), elements);
    const layout = layoutFrame([{ dtype: DTYPE_F32, shape, nbytes }]);
    assertEquals(layout.length, 17 + 2 + 4 * 255 + 8 + nbytes + 8);
    const bytes = new Uint8Array(layout.length);
    encodeFrameHeaders(bytes, layout);
    sealFrame(bytes, layout, SALT);
    const [tensor] = decodeFrame(bytes, SALT, CEILING).tensors;
    assertEquals(tensor, layout.tensors[0]);
  }
  assertEquals(layoutFrame([{ dtype: DTYPE_F32, shape: cases[2]![0] }]).tensors[0]!.nbytes, 0);
});

Deno.test("frame: bf16 takes two bytes an element, and elided zeros none", () => {
  const layout = layoutFrame([
    { dtype: DTYPE_BF16, shape: [3, 5] },
    { dtype: DTYPE_BF16, shape: [1_000], nbytes: 0 },
    { dtype: DTYPE_F32, shape: [] },
  ]);
  assertEquals(layout.tensors.map(({ nbytes }) => nbytes), [30, 0, 4]);
  const bytes = new Uint8Array(layout.length);
  encodeFrameHeaders(bytes, layout);
  sealFrame(bytes, layout, SALT);
  assertEquals(decodeFrame(bytes, SALT, CEILING), layout);
});

Deno.test("frame: what the format cannot say is refused before it is written", () => {
  const f32 = (shape: number[]) => ({ dtype: DTYPE_F32, shape });
  const cases: [{ dtype: number; shape: number[] }[], RegExp][] = [
    [[f32([2]), f32(new Array(256).fill(1))], /tensor 1 has 256 dims, .*255/],
    [[f32([2 ** 32, 0])], /tensor 0 has the dim 4294967296/],
    [[f32([1.5])], /tensor 0 has the dim 1.5/],
    [[f32([-1])], /tensor 0 has the dim -1/],
    [[f32([2 ** 15, 2 ** 15])], /4294967339 bytes, .*4294967294/],
    [new Array(MAX_TENSORS + 1).fill(f32([])), /65537 tensors, .*65536/],
  ];
  for (const [tensors, message] of cases) {
    const error = assertThrows(() => layoutFrame(tensors), RangeError);
    assert(message.test(error.message), `"${error.message}" does not match ${message}`);
  }
  const fits = layoutFrame([f32([Math.floor((MAX_FRAME_BYTES - 39) / 4)])]);
  assert(fits.length <= MAX_FRAME_BYTES && fits.length > MAX_FRAME_BYTES - 4, `${fits.length}`);

  const tensor = { shape: [3], values: new Float32Array(4) };
  assertThrows(() => encodeFrame("model", 1, [tensor], SALT), InvariantError, "4 values");
});

function expectSame(frame: Uint8Array, header: FrameHeader, wanted: RandomFrame): void {
  assertEquals(header.kind, wanted.kind);
  assert(Object.is(header.weight, wanted.weight), `${header.weight} is not ${wanted.weight}`);
  assertEquals(header.tensors.map(({ shape }) => shape), wanted.tensors.map(({ shape }) => shape));
  wanted.tensors.forEach(({ values }, i) => {
    // Compared as bytes: NaNs keep their payloads.
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    assertEquals(hex(dataOf(frame, header, i)), hex(bytes));
  });
}

Deno.test("frame: any values come back, bit by bit", () => {
  fc.assert(
    fc.property(frames, salts, (frame, salt) => {
      const bytes = encodeFrame(frame.kind, frame.weight, frame.tensors, salt);
      expectSame(bytes, decodeFrame(bytes, salt, CEILING), frame);
    }),
    { numRuns: 200 },
  );
});

Deno.test("frame: random damage is refused, and nothing but a refusal is thrown", () => {
  const edits = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), {
    minLength: 1,
    maxLength: 6,
  });
  fc.assert(
    fc.property(frames, edits, fc.boolean(), (frame, damage, resealed) => {
      const bytes = encodeFrame(frame.kind, frame.weight, frame.tensors, SALT);
      const original = bytes.slice();
      for (const [at, mask] of damage) bytes[at % bytes.length]! ^= mask;
      if (hex(bytes) === hex(original)) return;
      if (!resealed) {
        refused(() => decodeFrame(bytes, SALT, CEILING), "damaged");
        return;
      }
      // A peer that knows the salt can sign nonsense: it is refused, or means what its bytes say.
      sealFrame(bytes, { ...layoutFrame([]), length: bytes.length }, SALT);
      const header = tryDecode(() => decodeFrame(bytes, SALT, CEILING));
      if (header === undefined) return;
      const again = new Uint8Array(bytes.length);
      encodeFrameHeaders(again, header);
      header.tensors.forEach(({ at }, i) => again.set(dataOf(bytes, header, i), at));
      sealFrame(again, header, SALT);
      assertEquals(hex(again), hex(bytes));
    }),
    { numRuns: 400 },
  );
  fc.assert(fc.property(fc.uint8Array({ maxLength: 400 }), (noise) => {
    refused(() => decodeFrame(noise, SALT, CEILING), "noise");
  }));
});
