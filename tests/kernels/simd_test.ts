import { assertEquals } from "@std/assert";
import { Arena } from "../../kernels/arena.ts";
import { generate } from "../../kernels/build.ts";
import { plainConversions } from "../../kernels/convert.ts";
import type { F32Bytes } from "../../kernels/kernel.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { assertSameBits, awkward, lengths, Random } from "./values.ts";

const plain = new PlainKernel();

/** Copies of the same values at an address of the given misalignment, inside the arena or not. */
function placed(arena: Arena, values: F32Bytes, misalignment: number, inside: boolean) {
  const room = inside
    ? arena.alloc(values.length + misalignment)
    : new Uint8Array(values.length + misalignment);
  const run = room.subarray(misalignment);
  run.set(values);
  return { room, run };
}

Deno.test("the WASM module in the repository is what its source assembles to", async () => {
  const source = await Deno.readTextFile(new URL("../../kernels/simd.wat", import.meta.url));
  const built = await Deno.readTextFile(new URL("../../kernels/simd_wasm.ts", import.meta.url));
  assertEquals(await generate(source), built, "run `deno task kernels:build`");
});

for (const inside of [true, false]) {
  const where = inside ? "in the arena" : "outside the arena";

  Deno.test(`simd folds give plain's bits at every length and alignment, ${where}`, async () => {
    const arena = new Arena();
    const simd = SimdKernel.create(arena);
    const random = new Random(1);
    for (const length of [...lengths(40_000), (1 << 21) + 5]) {
      const count = length > 1e6 ? 5 : random.below(12);
      const misalignment = random.below(3) === 0 ? random.below(16) : 0;
      const sources = Array.from(
        { length: count },
        () => placed(arena, awkward(random, length), misalignment, inside),
      );
      const out = placed(arena, awkward(random, length), random.below(8), inside);
      const expected = new Uint8Array(length * 4);
      const factor = random.below(2) === 0 ? undefined : 1 / (1 + random.below(9));
      for (const [kernel, to] of [[plain, expected], [simd, out.run]] as const) {
        const sum = kernel.begin(to);
        const first = random.below(count + 1);
        sum.add(sources.slice(0, first).map(({ run }) => run));
        sum.add(sources.slice(first).map(({ run }) => run));
        sum.finish(factor);
      }
      assertSameBits(out.run, expected, `${count} sources of ${length} values`);
      if (inside) { for (const { room } of [...sources, out]) arena.free(room); }
    }
    await simd.close();
  });

  Deno.test(`simd conversions give plain's bits at every length and alignment, ${where}`, () => {
    const arena = new Arena();
    const simd = SimdKernel.create(arena);
    const random = new Random(2);
    for (const length of lengths(20_000)) {
      const source = placed(arena, awkward(random, length), random.below(5), inside);
      const narrow = placed(arena, new Uint8Array(length * 2), random.below(5), inside);
      const wide = placed(arena, new Uint8Array(length * 4), random.below(5), inside);
      const factor = random.below(2) === 0 ? 1.5 : 2 ** -random.below(120);
      const expectedNarrow = new Uint8Array(length * 2);
      const expectedWide = new Uint8Array(length * 4);

      plainConversions.scaleToBf16(expectedNarrow, source.run, factor);
      simd.scaleToBf16(narrow.run, source.run, factor);
      assertEquals(narrow.run.slice(), expectedNarrow);

      plainConversions.bf16ToF32(expectedWide, expectedNarrow);
      simd.bf16ToF32(wide.run, narrow.run);
      assertEquals(wide.run.slice(), expectedWide);

      plainConversions.scaleCopy(expectedWide, source.run, factor);
      simd.scaleCopy(wide.run, source.run, factor);
      assertSameBits(wide.run, expectedWide, `${length} values x ${factor}`);

      simd.scale(source.run, factor);
      assertSameBits(source.run, expectedWide, `${length} values x ${factor} in place`);
      if (inside) { for (const { room } of [source, narrow, wide]) arena.free(room); }
    }
  });

  Deno.test(`the first NaN or infinity is found wherever it is, ${where}`, () => {
    const arena = new Arena();
    const simd = SimdKernel.create(arena);
    const random = new Random(3);
    for (const length of lengths(20_000)) {
      const values = new Float32Array(length).map(() => random.below(1000) - 500);
      if (length > 2) values[1] = 3.4028234663852886e38;
      const { room, run } = placed(arena, new Uint8Array(values.buffer), random.below(5), inside);
      assertEquals(simd.firstNonFinite(run), -1);
      assertEquals(plainConversions.firstNonFinite(run), -1);
      if (length > 0) {
        const at = random.below(length);
        const later = at + random.below(length - at);
        const view = new DataView(run.buffer, run.byteOffset, run.length);
        for (const bad of [NaN, Infinity, -Infinity]) {
          view.setFloat32(later * 4, NaN, true);
          view.setFloat32(at * 4, bad, true);
          assertEquals(simd.firstNonFinite(run), at, `${bad} at ${at} of ${length}`);
          assertEquals(plainConversions.firstNonFinite(run), at);
        }
      }
      if (inside) arena.free(room);
    }
  });

  Deno.test(`the first NaN or infinity among bf16 values is found, ${where}`, () => {
    const arena = new Arena();
    const simd = SimdKernel.create(arena);
    const random = new Random(4);
    const longest = inside ? 20_000 : 300_000;
    for (const length of [...lengths(20_000), longest]) {
      const values = new Uint16Array(length).map(() =>
        random.below(0x7f80) | random.below(2) << 15
      );
      const { room, run } = placed(arena, new Uint8Array(values.buffer), random.below(5), inside);
      assertEquals(simd.firstNonFiniteBf16(run), -1);
      assertEquals(plainConversions.firstNonFiniteBf16(run), -1);
      if (length > 0) {
        const at = random.below(length);
        const later = at + random.below(length - at);
        const view = new DataView(run.buffer, run.byteOffset, run.length);
        for (const bad of [0x7fc0, 0x7f80, 0xff80, 0x7f81]) {
          view.setUint16(later * 2, 0x7fc0, true);
          view.setUint16(at * 2, bad, true);
          assertEquals(simd.firstNonFiniteBf16(run), at, `${bad} at ${at} of ${length}`);
          assertEquals(plainConversions.firstNonFiniteBf16(run), at);
        }
      }
      if (inside) arena.free(room);
    }
  });
}

Deno.test("a fold into its own first source, and a source in another memory", () => {
  const arena = new Arena();
  const simd = SimdKernel.create(arena);
  const random = new Random(4);
  const values = [1, 2, 3].map(() => awkward(random, 10_001));
  const expected = new Uint8Array(values[0]!.length);
  const sum = plain.begin(expected);
  sum.add(values);
  sum.finish(0.25);
  const out = placed(arena, values[0]!, 0, true).run;
  const inside = placed(arena, values[1]!, 1, true).run;
  const outside = values[2]!;
  const fold = simd.begin(out);
  fold.add([out, inside]);
  fold.add([outside]);
  fold.finish(0.25);
  assertSameBits(out, expected, "three sources");
});

Deno.test("bf16: round to nearest even, overflow to infinity, NaN stays NaN and becomes quiet", () => {
  const arena = new Arena();
  const simd = SimdKernel.create(arena);
  const cases: [number, number][] = [
    [0x3f800000, 0x3f80], // 1
    [0x3f808000, 0x3f80], // halfway, even below
    [0x3f818000, 0x3f82], // halfway, even above
    [0x3f808001, 0x3f81], // just over halfway
    [0x7f7fffff, 0x7f80], // the largest f32 rounds to infinity
    [0x7f7f7fff, 0x7f7f], // the largest that does not
    [0x80000000, 0x8000], // -0
    [0x00000001, 0x0000], // the smallest subnormal
    [0xff800000, 0xff80], // -infinity
    [0x7f800001, 0x7fc0], // a signalling NaN whose payload is cut off
    [0xffc12345, 0xffc1], // a quiet NaN
  ];
  const src = new Uint8Array(Uint32Array.from(cases, ([f32]) => f32).buffer);
  for (const conversions of [plainConversions, simd]) {
    const dst = new Uint16Array(cases.length);
    conversions.scaleToBf16(new Uint8Array(dst.buffer), src, 1);
    assertEquals([...dst], cases.map(([, bf16]) => bf16));
  }
});

Deno.test("bf16 runs add up to the bits of widening each and adding in order", () => {
  const arena = new Arena();
  const simd = SimdKernel.create(arena);
  const random = new Random(7);
  for (const length of lengths(20_000)) {
    const count = random.below(10);
    const sources = Array.from({ length: count }, () => {
      const narrow = placed(arena, new Uint8Array(length * 2), random.below(5), true);
      plainConversions.scaleToBf16(narrow.run, awkward(random, length), 1);
      return narrow;
    });
    const sum = placed(arena, new Uint8Array(length * 4), random.below(5), true);
    simd.addBf16(sum.run, sources.map(({ run }) => run));
    const expected = new Uint8Array(length * 4);
    const adding = plain.begin(expected);
    for (const { run } of sources) {
      const wide = new Uint8Array(length * 4);
      plainConversions.bf16ToF32(wide, run);
      adding.add([wide]);
    }
    adding.finish();
    assertSameBits(sum.run, expected, `${count} runs of ${length} values`);
    for (const { room } of [sum, ...sources]) arena.free(room);
  }
});

Deno.test("a worker folds in the shared memory with the module it was sent", async () => {
  const arena = new Arena();
  const random = new Random(5);
  const sources = [1, 2, 3, 4].map(() => awkward(random, 30_000));
  const expected = new Uint8Array(sources[0]!.length);
  const sum = plain.begin(expected);
  sum.add(sources);
  sum.finish(0.25);
  const out = arena.alloc(expected.length);
  const runs = sources.map((source) => placed(arena, source, 0, true).run);
  const worker = new Worker(new URL("./simd_worker.ts", import.meta.url), { type: "module" });
  try {
    const done = new Promise((resolve, reject) => {
      worker.onmessage = (event) => resolve(event.data);
      worker.onerror = (event) => reject(new Error(event.message));
    });
    worker.postMessage({
      memory: arena.memory,
      module: SimdKernel.compile(),
      length: expected.length,
      out: out.byteOffset,
      sources: runs.map((run) => run.byteOffset),
      factor: 0.25,
    });
    assertEquals(await done, "done");
  } finally {
    worker.terminate();
  }
  assertSameBits(out, expected, "four sources in a worker");
});

Deno.test("at addresses beyond 2 GiB, up to the last byte of a full memory", () => {
  const arena = new Arena();
  const simd = SimdKernel.create(arena);
  const random = new Random(6);
  // Pages that nobody touches cost address space only.
  arena.alloc(2 ** 31);
  const rest = arena.alloc(2 ** 32 - arena.reserved);
  const values = [1, 2].map(() => awkward(random, 16_384 + 3));
  const length = values[0]!.length;
  const runs = [1, 2, 3].map((k) => rest.subarray(rest.length - k * length).subarray(0, length));
  runs[1]!.set(values[0]!);
  runs[2]!.set(values[1]!);
  assertEquals(runs[0]!.byteOffset + length, 2 ** 32);
  const expected = new Uint8Array(length);
  for (
    const [kernel, out, sources] of [[plain, expected, values], [
      simd,
      runs[0]!,
      runs.slice(1),
    ]] as const
  ) {
    const sum = kernel.begin(out);
    sum.add(sources);
    sum.finish(0.5);
  }
  assertSameBits(runs[0]!, expected, "at the end of the memory");
  assertEquals(simd.firstNonFinite(runs[0]!), plainConversions.firstNonFinite(expected));
});
