import { assert, assertEquals, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import {
  decodeSafetensorsHeader,
  decodeSafetensorsPrefix,
  encodeSafetensorsHeader,
  SAFETENSORS_MAX_HEADER_BYTES,
  SafetensorsError,
  type SafetensorsErrorCode,
  type SafetensorsHeader,
} from "../../wire/safetensors.ts";
import { elementCount } from "../../wire/round_frame.ts";
import { eachCut, eachFlip } from "./torture.ts";

// Written by the safetensors package 0.8.0 for Python (save of numpy arrays, with metadata).
const GOLDEN = Uint8Array.fromBase64(
  "KAEAAAAAAAB7Il9fbWV0YWRhdGFfXyI6eyJmb3JtYXQiOiJwdCIsImsiOiLDvFwieCJ9LCJiLndlaWdodCI6eyJkdHlwZSI6" +
    "IkYzMiIsInNoYXBlIjpbMiwzXSwiZGF0YV9vZmZzZXRzIjpbMCwyNF19LCJlbXB0eSI6eyJkdHlwZSI6IkYzMiIsInNoYX" +
    "BlIjpbMCwzXSwiZGF0YV9vZmZzZXRzIjpbMjQsMjRdfSwibmHDr3ZlIOWQjSI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpb" +
    "Ml0sImRhdGFfb2Zmc2V0cyI6WzI0LDMyXX0sInNjYWxhciI6eyJkdHlwZSI6IkYzMiIsInNoYXBlIjpbXSwiZGF0YV9vZm" +
    "ZzZXRzIjpbMzIsMzZdfX0gICAgIAAAAAAAAAA/AACAPwAAwD8AAABAAAAgQAEAAACeyX9/AAAAgA==",
);

function decode(file: Uint8Array): SafetensorsHeader {
  const length = decodeSafetensorsPrefix(file.subarray(0, 8), file.length);
  return decodeSafetensorsHeader(file.subarray(8, 8 + length), file.length);
}

function refused(action: () => unknown, code: SafetensorsErrorCode, text = ""): void {
  const error = assertThrows(action, SafetensorsError, text) as SafetensorsError;
  assertEquals(error.code, code, error.message);
}

/** A file of that JSON and so many bytes of data. */
function fileOf(json: unknown, data: number): Uint8Array {
  const text = new TextEncoder().encode(typeof json === "string" ? json : JSON.stringify(json));
  const file = new Uint8Array(8 + text.length + data);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  return file;
}

Deno.test("safetensors: a file of the format's own writer", () => {
  const header = decode(GOLDEN);
  assertEquals(header.metadata, { format: "pt", k: 'ü"x' });
  assertEquals(header.fileBytes, 340);
  assertEquals(
    header.tensors.map(({ name, dtype, shape, nbytes }) => [name, dtype, shape, nbytes]),
    [
      ["b.weight", "F32", [2, 3], 24],
      ["empty", "F32", [0, 3], 0],
      ["naïve 名", "F32", [2], 8],
      ["scalar", "F32", [], 4],
    ],
  );
  const values = header.tensors.map(({ at, nbytes }) => [
    ...new Float32Array(GOLDEN.slice(at, at + nbytes).buffer),
  ]);
  const extremes = [1e-45, 3.4e38].map(Math.fround);
  assertEquals(values, [[0, 0.5, 1, 1.5, 2, 2.5], [], extremes, [-0]]);
  // Ours gives the same bytes for the same things.
  const { bytes, header: ours } = encodeSafetensorsHeader(header.tensors, header.metadata);
  assertEquals(bytes, GOLDEN.slice(0, header.dataAt));
  assertEquals(ours, header);
});

Deno.test("safetensors: any names, shapes and texts come back in their order", () => {
  const tensor = fc.record({
    name: fc.string({ unit: "grapheme", maxLength: 12 }).filter((name) => name !== "__metadata__"),
    dtype: fc.constantFrom("F32" as const, "BF16" as const),
    shape: fc.array(fc.integer({ min: 1, max: 70_000 }), { maxLength: 3 }),
  });
  const tensors = fc.uniqueArray(tensor, { selector: ({ name }) => name, maxLength: 12 });
  const metadata = fc.dictionary(fc.string(), fc.string(), { maxKeys: 4 });
  fc.assert(fc.property(tensors, metadata, (list, texts) => {
    const { bytes, header } = encodeSafetensorsHeader(list, texts);
    assertEquals(bytes.length, header.dataAt);
    assertEquals(bytes.length % 8, 0);
    const length = decodeSafetensorsPrefix(bytes.subarray(0, 8), header.fileBytes);
    const read = decodeSafetensorsHeader(bytes.subarray(8), header.fileBytes);
    assertEquals(length, bytes.length - 8);
    assertEquals(read.tensors, header.tensors);
    assertEquals(Object.entries(read.metadata).sort(), Object.entries(texts).sort());
    const data = list.reduce(
      (sum, { dtype, shape }) => sum + elementCount(shape) * (dtype === "F32" ? 4 : 2),
      0,
    );
    assertEquals(header.fileBytes, header.dataAt + data);
  }));
});

Deno.test("safetensors: the first text of the metadata has one place, whatever the tensors", () => {
  const texts = { digest: "0".repeat(64), other: "x" };
  const start = '{"__metadata__":{"digest":"';
  for (const names of [[], ["a"], ["0", "1", "b"]]) {
    const list = names.map((name) => ({ name, dtype: "F32" as const, shape: [2] }));
    const { bytes } = encodeSafetensorsHeader(list, texts);
    assertEquals(new TextDecoder().decode(bytes.subarray(8, 8 + start.length)), start);
  }
});

Deno.test("safetensors: what cannot be written is refused by name", () => {
  const f32 = (name: string, ...shape: number[]) => ({ name, dtype: "F32" as const, shape });
  const encode = (...list: ReturnType<typeof f32>[]) => () => encodeSafetensorsHeader(list);
  assertThrows(encode(f32("a", 1), f32("a", 2)), RangeError, '"a" names two tensors');
  assertThrows(encode(f32("__metadata__", 1)), RangeError, "not a tensor's name");
  assertThrows(encode(f32("w", -1)), RangeError, '"w" has the shape [-1]');
  assertThrows(encode(f32("w", 2 ** 40, 2 ** 40)), RangeError, "countable");
  const huge = "n".repeat(SAFETENSORS_MAX_HEADER_BYTES);
  refused(encode(f32(huge, 1)), "Oversized", "at most 100000000");
});

Deno.test("safetensors: what is no header is refused by cause", () => {
  const a = { dtype: "F32", shape: [2], data_offsets: [0, 8] };
  const b = { dtype: "F32", shape: [1], data_offsets: [8, 12] };
  assertEquals(decode(fileOf({ b, a }, 12)).tensors.map(({ name }) => name), ["a", "b"]);
  const cases: [json: unknown, data: number, code: SafetensorsErrorCode, text: string][] = [
    ["", 0, "Malformed", "none"],
    [' {"a":1}', 0, "Malformed", "starts with byte 32"],
    ["{", 0, "Malformed", "not JSON"],
    ["{}x", 0, "Malformed", "not JSON"],
    [{ a: 1 }, 0, "Malformed", '"a" is not described'],
    [{ a: null }, 0, "Malformed", '"a" is not described'],
    [{ a: { ...a, dtype: "F16" } }, 8, "Dtype", '"a" has dtype "F16", expected F32 or BF16'],
    [{ a: { ...a, dtype: undefined } }, 8, "Dtype", "nothing"],
    [{ a: { ...a, shape: [-2] } }, 8, "Malformed", "[-2]"],
    [{ a: { ...a, shape: [1.5] } }, 8, "Malformed", "[1.5]"],
    [{ a: { ...a, shape: 2 } }, 8, "Malformed", "shape 2"],
    [{ a: { ...a, data_offsets: [0] } }, 8, "Malformed", "[0]"],
    [{ a: { ...a, data_offsets: [0, 8, 9] } }, 8, "Malformed", "[0,8,9]"],
    [{ a: { ...a, data_offsets: [8, 0] } }, 8, "Malformed", "[8,0]"],
    [{ a: { ...a, shape: [3] } }, 8, "Offsets", "needs 12 bytes, its data_offsets span 8"],
    [{ a: { ...a, shape: [2 ** 31, 2 ** 31] } }, 8, "Offsets", "span 8"],
    [{ a: { ...a, data_offsets: [4, 12] } }, 12, "Offsets", "starts at 4, expected 0"],
    [{ a, b: { ...b, data_offsets: [4, 8] } }, 8, "Offsets", '"b" starts at 4, expected 8'],
    [{ a, b: { ...b, data_offsets: [12, 16] } }, 16, "Offsets", '"b" starts at 12, expected 8'],
    [{ a }, 7, "Truncated", "header needs"],
    [{ a }, 9, "Trailing", "header needs"],
    [{ __metadata__: { k: 1 } }, 0, "Malformed", "object of texts"],
    [{ __metadata__: [] }, 0, "Malformed", "object of texts"],
  ];
  for (const [json, data, code, text] of cases) {
    refused(() => decode(fileOf(json, data)), code, text);
  }
  const notUtf8 = fileOf({ a }, 8);
  notUtf8[10] = 0xff;
  refused(() => decode(notUtf8), "Malformed", "not UTF-8");
});

Deno.test("safetensors: a length is bounded before anything is made of it", () => {
  const prefix = (length: bigint) => {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setBigUint64(0, length, true);
    return bytes;
  };
  refused(() => decodeSafetensorsPrefix(prefix(2n ** 64n - 1n), 2 ** 50), "Oversized");
  refused(() => decodeSafetensorsPrefix(prefix(100_000_001n), 2 ** 50), "Oversized");
  refused(() => decodeSafetensorsPrefix(prefix(101n), 108), "Truncated", "101 bytes");
  refused(() => decodeSafetensorsPrefix(prefix(0n).subarray(1), 7), "Truncated");
  assertEquals(decodeSafetensorsPrefix(prefix(100n), 108), 100);
});

Deno.test("safetensors: every cut is refused, and no flipped bit does anything but that", () => {
  eachCut(GOLDEN, (cut) => assertThrows(() => decode(cut), SafetensorsError));
  const { dataAt } = decode(GOLDEN);
  let accepted = 0;
  eachFlip(GOLDEN.slice(0, dataAt), (flipped) => {
    const file = GOLDEN.slice();
    file.set(flipped);
    try {
      const { tensors, fileBytes } = decode(file);
      assertEquals(fileBytes, GOLDEN.length);
      assertEquals(tensors.reduce((sum, { nbytes }) => sum + nbytes, 0), 36);
      accepted++;
    } catch (error) {
      assert(error instanceof SafetensorsError, `${error}`);
    }
  });
  // Letters of names and texts may change unseen: a checkpoint's checksum is for that.
  assert(accepted > 0);
});
