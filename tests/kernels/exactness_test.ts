import { assertEquals, assertStringIncludes } from "@std/assert";
import { Arena } from "../../kernels/arena.ts";
import { checkExactness } from "../../kernels/exactness.ts";
import type { F32Bytes, FoldKernel } from "../../kernels/kernel.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { SimdKernel } from "../../kernels/simd.ts";

const floats = (run: F32Bytes) => new Float32Array(run.buffer, run.byteOffset, run.length / 4);

/** An arithmetic unit: what it makes of an addition and of a product. */
interface Unit {
  add(a: number, b: number): number;
  multiply(a: number, b: number): number;
}

/** A kernel that computes with `unit`, from the last source to the first where told to. */
function kernelOf(unit: Unit, backwards = false): FoldKernel {
  const scale = (data: F32Bytes, factor: number) => {
    const values = floats(data);
    values.forEach((value, i) => values[i] = unit.multiply(value, Math.fround(factor)));
  };
  return {
    name: "plain",
    flushesSubnormals: false,
    wholeFromBytes: Infinity,
    begin(out) {
      const all: F32Bytes[] = [];
      return {
        add: (sources) => void all.push(...sources),
        finish: (factor) => {
          const sum = new Float32Array(out.length / 4);
          for (const source of backwards ? all.toReversed() : all) {
            floats(source).forEach((value, i) => sum[i] = unit.add(sum[i]!, value));
          }
          floats(out).set(sum);
          if (factor !== undefined) scale(out, factor);
        },
      };
    },
    scale,
    close: () => Promise.resolve(),
  };
}

const exact: Unit = { add: (a, b) => a + b, multiply: (a, b) => a * b };
const flush = (x: number) => Math.abs(x) < 2 ** -126 ? x * 0 : x;
const onInput: Unit = {
  add: (a, b) => flush(a) + flush(b),
  multiply: (a, b) => flush(a) * flush(b),
};
const onResult: Unit = {
  add: (a, b) => flush(Math.fround(a + b)),
  multiply: (a, b) => flush(Math.fround(a * b)),
};

Deno.test("plain, simd, and a kernel of the same arithmetic are exact", async () => {
  const kernels = [new PlainKernel(), SimdKernel.create(new Arena()), kernelOf(exact)];
  for (const kernel of kernels) {
    assertEquals(await checkExactness(kernel), {
      exact: true,
      flushesSubnormals: false,
      difference: "",
    });
  }
});

Deno.test("a unit that takes subnormals for zeros is exact, and known to", async () => {
  for (const unit of [onInput, onResult]) {
    const found = await checkExactness(kernelOf(unit));
    assertEquals(found, { exact: true, flushesSubnormals: true, difference: "" });
  }
});

const wrong: [string, FoldKernel][] = [
  ["adds in another order", kernelOf(exact, true)],
  ["keeps more bits than f32 between a sum and its product", {
    ...kernelOf(exact),
    begin(out) {
      const all: F32Bytes[] = [];
      return {
        add: (sources) => void all.push(...sources),
        finish: (factor) => {
          const values = floats(out);
          for (let i = 0; i < values.length; i++) {
            values[i] = all.reduce((sum, source) => sum + floats(source)[i]!, 0) * (factor ?? 1);
          }
        },
      };
    },
  }],
  [
    "multiplies by a slightly wrong factor",
    kernelOf({ ...exact, multiply: (a, b) => a * b * (1 + 2 ** -23) }),
  ],
  [
    "starts from -0.0",
    kernelOf({
      ...exact,
      add: (a, b) => Object.is(a, 0) && Object.is(b, -0) ? -0 : a + b,
    }),
  ],
  [
    "saturates instead of overflowing",
    kernelOf({
      ...exact,
      add: (a, b) => Math.max(-3.4028234663852886e38, Math.min(3.4028234663852886e38, a + b)),
    }),
  ],
  ["takes NaN for zero", kernelOf({ ...exact, add: (a, b) => a + (Number.isNaN(b) ? 0 : b) })],
];
for (const [what, kernel] of wrong) {
  Deno.test(`a kernel that ${what} is not exact`, async () => {
    const found = await checkExactness(kernel);
    assertEquals(found.exact, false);
    assertStringIncludes(found.difference, "expected");
  });
}
