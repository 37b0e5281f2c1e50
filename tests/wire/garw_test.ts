// The GARW block against the golden vectors, and against damage.
import { assertEquals, assertInstanceOf, assertMatch, assertThrows } from "@std/assert";
import * as fc from "fast-check";
import {
  canonicalGarw,
  cidOfCanonical,
  decodeGarw,
  encodeGarw,
  GARW_CID,
  garwCid,
  GarwError,
  parseGarw,
} from "../../wire/garw.ts";
import { Fnv1a64 } from "../../wire/fnv.ts";
import { fedavg } from "../../controller/passes/fedavg.ts";
import { bad, good, hex, index, type Vector, vectorBytes } from "../vectors.ts";

interface GarwVector extends Vector {
  shape: number[];
  num_samples: number;
  cid: string;
  values_f32le: string;
}

function bitsOf(values: Float32Array): string {
  return hex(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

function codeOf(run: () => unknown): string {
  const error = assertThrows(run);
  assertInstanceOf(error, GarwError);
  return (error as GarwError).code;
}

Deno.test("GARW vectors decode to the index's values and encode back", () => {
  const vectors = good("garw") as GarwVector[];
  assertEquals(vectors.length, 4);
  for (const vector of vectors) {
    const bytes = vectorBytes(vector.file);
    const block = decodeGarw(bytes);
    assertEquals(block.shape, vector.shape, vector.file);
    assertEquals(block.numSamples, vector.num_samples, vector.file);
    assertEquals(bitsOf(block.values), vector.values_f32le, vector.file);
    assertEquals(encodeGarw(block), bytes, vector.file);
    assertEquals(garwCid(block), vector.cid, vector.file);
    assertMatch(vector.cid, GARW_CID);
  }
});

Deno.test("bad GARW vectors are refused with the named error", () => {
  const vectors = bad("garw");
  assertEquals(vectors.length, 3);
  for (const vector of vectors) {
    assertEquals(codeOf(() => decodeGarw(vectorBytes(vector.file))), vector.error, vector.file);
  }
});

Deno.test("a GARW block cut anywhere is truncated, and lengthened it has trailing data", () => {
  for (const vector of good("garw")) {
    const bytes = vectorBytes(vector.file);
    for (let length = 0; length < bytes.length; length++) {
      assertEquals(codeOf(() => decodeGarw(bytes.subarray(0, length))), "TruncatedData");
    }
    assertEquals(codeOf(() => decodeGarw(Uint8Array.of(...bytes, 0))), "TrailingData");
  }
});

Deno.test("a GARW block with any bit flipped decodes to something else or is refused", () => {
  const bytes = vectorBytes("garw_1.bin");
  const name = cidOfCanonical(bytes);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Uint8Array.from(bytes);
    flipped[bit >> 3]! ^= 1 << (bit & 7);
    try {
      assertEquals(encodeGarw(decodeGarw(flipped)), flipped);
      assertEquals(cidOfCanonical(flipped) === name, false, `bit ${bit}`);
    } catch (error) {
      assertInstanceOf(error, GarwError);
    }
  }
});

Deno.test("huge counts in a GARW block are refused before anything is allocated for them", () => {
  const bytes = Uint8Array.from(vectorBytes("garw_1.bin"));
  const view = new DataView(bytes.buffer);
  view.setUint32(16, 0xffff_ffff, true);
  assertEquals(codeOf(() => parseGarw(bytes)), "TruncatedData");
});

Deno.test("any GARW block survives a round trip, bits and all, from any offset", () => {
  fc.assert(fc.property(
    fc.array(fc.nat({ max: 0xffff_ffff }), { maxLength: 5 }),
    fc.uint8Array({ maxLength: 64 }),
    fc.nat({ max: 0xffff_ffff }),
    fc.nat({ max: 3 }),
    (shape, raw, numSamples, offset) => {
      const values = new Float32Array(raw.slice(0, raw.length & ~3).buffer);
      const encoded = encodeGarw({ shape, values, numSamples });
      const moved = new Uint8Array(encoded.length + offset);
      moved.set(encoded, offset);
      const block = decodeGarw(moved.subarray(offset));
      assertEquals(block.shape, shape);
      assertEquals(block.numSamples, numSamples);
      assertEquals(bitsOf(block.values), bitsOf(values));
    },
  ));
});

Deno.test("the CID depends on values and samples, not on the shape", () => {
  const values = Float32Array.of(1, 2, 3, 4);
  const square = decodeGarw(encodeGarw({ shape: [2, 2], values, numSamples: 7 }));
  const flat = decodeGarw(canonicalGarw(values, 7));
  assertEquals(garwCid(square), garwCid(flat));
  assertEquals(garwCid(flat), cidOfCanonical(canonicalGarw(values, 7)));
  assertEquals(garwCid({ values, numSamples: 8 }) === garwCid(flat), false);
});

Deno.test("encoding refuses what a u32 cannot hold", () => {
  const values = new Float32Array(1);
  for (const numSamples of [-1, 0.5, 2 ** 32, NaN]) {
    assertThrows(() => encodeGarw({ shape: [1], values, numSamples }), RangeError, "num_samples");
  }
  assertThrows(() => encodeGarw({ shape: [2 ** 32], values, numSamples: 1 }), RangeError, "a dim");
});

Deno.test("FNV-1a agrees with plain 64-bit arithmetic, whatever the pieces", () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat({ max: 200 }), (bytes, cut) => {
    let hash = 14695981039346656037n;
    for (const byte of bytes) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 1099511628211n);
    const pieces = new Fnv1a64().update(bytes.subarray(0, cut)).update(bytes.subarray(cut));
    assertEquals(pieces.hex(), hash.toString(16).padStart(16, "0"));
  }));
});

Deno.test("fedavg gives the vectors' bits", () => {
  const cases = Object.entries(index.fedavg_f32le);
  assertEquals(cases.length, 3);
  for (const [names, bits] of cases) {
    const allZero = names === "all three, num_samples 0";
    const files = allZero ? ["garw_1", "garw_2", "garw_3"] : names.split("+");
    const blocks = files.map((name) => {
      const block = decodeGarw(vectorBytes(`${name}.bin`));
      return allZero ? { ...block, numSamples: 0 } : block;
    });
    assertEquals(bitsOf(fedavg(blocks)), bits, names);
  }
});

Deno.test("fedavg: all samples zero is the uniform mean, no input and two shapes are errors", () => {
  const block = (shape: number[], values: number[], numSamples = 0) => ({
    shape,
    values: Float32Array.from(values),
    numSamples,
  });
  assertEquals([...fedavg([block([2], [1, 5]), block([2], [3, 6])])], [2, 5.5]);
  assertEquals(codeOf(() => fedavg([])), "EmptyInput");
  const mismatch = () => fedavg([block([2], [1, 2]), block([1, 2], [1, 2])]);
  assertEquals(codeOf(mismatch), "ShapeMismatch");
  assertThrows(mismatch, GarwError, "[1,2]");
  assertThrows(mismatch, GarwError, "[2]");
});
