// FedAvg by the fold against the exported function and a float64 reference.
import { assert, assertEquals, assertInstanceOf, assertRejects } from "@std/assert";
import * as fc from "fast-check";
import { foldedMean } from "../../controller/passes/aggregate.ts";
import { fedavg } from "../../controller/passes/fedavg.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { type GarwBlock, GarwError } from "../../wire/garw.ts";
import { decodeGarw } from "../../wire/garw.ts";
import { vectorBytes } from "../vectors.ts";

const kernel = new PlainKernel();

function byFold(blocks: readonly GarwBlock[]): Promise<Float32Array> {
  return foldedMean(
    kernel,
    blocks.map(({ values, numSamples }) => ({
      values: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
      numSamples,
    })),
  );
}

/** The mean in float64, and the sum of the terms' magnitudes that bounds rounding. */
function reference(blocks: readonly GarwBlock[]): { mean: number; scale: number }[] {
  const total = blocks.reduce((sum, { numSamples }) => sum + numSamples, 0);
  const weight = (n: number) => total === 0 ? 1 / blocks.length : n / total;
  return Array.from(blocks[0]!.values, (_, i) => {
    const terms = blocks.map(({ values, numSamples }) => values[i]! * weight(numSamples));
    const add = (sum: number, term: number) => sum + term;
    return { mean: terms.reduce(add, 0), scale: terms.map(Math.abs).reduce(add, 0) };
  });
}

function checkAgainstReference(blocks: GarwBlock[], ...results: Float32Array[]): void {
  // The bound that the documentation gives for either way of averaging.
  const bound = (blocks.length + 2) * 2 ** -24;
  for (const [i, { mean, scale }] of reference(blocks).entries()) {
    for (const result of results) {
      const error = Math.abs(result[i]! - mean);
      assert(error <= scale * bound + 2 ** -149, `value ${i}: ${result[i]}, expected ${mean}`);
    }
  }
}

Deno.test("FedAvg by the fold, by the function and in float64 agree on the vectors", async () => {
  const blocks = ["garw_1", "garw_2", "garw_3"].map((name) =>
    decodeGarw(vectorBytes(`${name}.bin`))
  );
  const folded = await byFold(blocks);
  checkAgainstReference(blocks, folded, fedavg(blocks));
  for (const [i, { mean }] of reference(blocks).entries()) {
    assert(Math.abs(folded[i]! - mean) <= 1e-6 * Math.max(1, Math.abs(mean)));
  }
});

Deno.test("FedAvg by the fold stays within its documented bound on any values", async () => {
  const value = fc.oneof(
    fc.float({ noNaN: true, noDefaultInfinity: true, min: -1e6, max: 1e6 }),
    fc.constantFrom(0, -0, 1, -1, 2 ** -20),
  );
  const blocks = fc.integer({ min: 1, max: 5 }).chain((length) =>
    fc.array(
      fc.record({
        shape: fc.constant([length]),
        values: fc.array(value, { minLength: length, maxLength: length }).map((v) =>
          Float32Array.from(v)
        ),
        numSamples: fc.nat({ max: 5_000 }),
      }),
      { minLength: 1, maxLength: 20 },
    )
  );
  await fc.assert(fc.asyncProperty(blocks, async (blocks) => {
    checkAgainstReference(blocks, await byFold(blocks), fedavg(blocks));
  }));
});

Deno.test("FedAvg by the fold: equal powers of two make it the function's bits", async () => {
  const blocks = [1, 2, 3, 4].map((k) => ({
    shape: [3],
    values: Float32Array.of(k / 3, -k * 1e5, k * 1e-30),
    numSamples: 8,
  }));
  assertEquals(await byFold(blocks), fedavg(blocks));
});

Deno.test("FedAvg by the fold: without any samples everybody counts the same", async () => {
  const blocks = [[1, 2], [3, 6], [5, 10]].map((values) => ({
    shape: [2],
    values: Float32Array.from(values),
    numSamples: 0,
  }));
  const mean = await byFold(blocks);
  checkAgainstReference(blocks, mean);
  assertEquals([...mean], [3, 6]);
});

Deno.test("FedAvg by the fold: a layer larger than the scratch is averaged in slices", async () => {
  const length = 3_000_001;
  const blocks = [1, 2, 4].map((k) => ({
    shape: [length],
    values: Float32Array.from({ length }, (_, i) => (i % 1000) * k),
    numSamples: 8 / k,
  }));
  const mean = await byFold(blocks);
  // 8k + 4 x 2k + 2 x 4k over 14 samples.
  const expected = Float32Array.from(
    { length },
    (_, i) => Math.fround((i % 1000) * 24) * Math.fround(1 / 14),
  );
  assertEquals(mean.length, length);
  assert(mean.every((value, i) => value === expected[i]));
});

Deno.test("FedAvg by the fold: no values, no contributions, unequal ones", async () => {
  const empty = { values: new Uint8Array(), numSamples: 1 };
  assertEquals(await foldedMean(kernel, [empty]), new Float32Array());
  const none = await assertRejects(() => foldedMean(kernel, []));
  assertInstanceOf(none, GarwError);
  assertEquals((none as GarwError).code, "EmptyInput");
  const odd = await assertRejects(() =>
    foldedMean(kernel, [empty, { values: new Uint8Array(4), numSamples: 1 }])
  );
  assertEquals((odd as GarwError).code, "ShapeMismatch");
});
