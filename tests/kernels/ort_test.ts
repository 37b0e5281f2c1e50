import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import { findAdapter } from "../../kernels/adapter.ts";
import { Arena } from "../../kernels/arena.ts";
import type { F32Bytes, FoldKernel } from "../../kernels/kernel.ts";
import { type KernelLogger, OrtKernel, OrtUnavailable } from "../../kernels/ort.ts";
import { placementsIn } from "../../kernels/ort_placement.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { SimdKernel } from "../../kernels/simd.ts";
import { assertSameBits, awkward, lengths, Random } from "./values.ts";

const plain = new PlainKernel();
const adapter = await findAdapter();
const skipped = adapter === undefined ? " (skipped: no WebGPU adapter on this machine)" : "";

/** A logger that only counts what is written at warning level. */
function counting(): { logger: KernelLogger; warnings: string[] } {
  const warnings: string[] = [];
  const logger: KernelLogger = {
    info: () => {},
    warn: (message, values) =>
      warnings.push(message.replace(/\{(\w+)\}/g, (_, key) => `${values[key]}`)),
  };
  return { logger, warnings };
}

/** The sum of `sources` by `kernel`, added in two parts, into `out`. */
async function fold(
  kernel: FoldKernel,
  out: F32Bytes,
  sources: readonly F32Bytes[],
  factor?: number,
  first = 1,
): Promise<F32Bytes> {
  const sum = kernel.begin(out);
  await sum.add(sources.slice(0, first));
  await sum.add(sources.slice(first));
  await sum.finish(factor);
  return out;
}

/** Runs in an arena, filled with the values near 1 that no sum makes infinite. */
function nearOne(arena: Arena, seed: number, bytes: number): F32Bytes {
  const random = new Random(seed);
  const pattern = new Uint32Array(1 << 16).map(() => 0x3f000000 | (random.bits() & 0x80ffffff));
  const block = new Uint8Array(pattern.buffer);
  const run = arena.alloc(bytes);
  for (let at = 0; at < bytes; at += block.length) {
    run.set(block.subarray(0, Math.min(block.length, bytes - at)), at);
  }
  return run;
}

function inArena(arena: Arena, values: Uint8Array): F32Bytes {
  const run = arena.alloc(values.length);
  run.set(values);
  return run;
}

/** Sums in flight at a time: a result's way back from the GPU is mostly waiting. */
const BATCH = 10;

async function inBatches<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let at = 0; at < items.length; at += BATCH) {
    await Promise.all(items.slice(at, at + BATCH).map(work));
  }
}

for (const provider of ["webgpu", "wasm"] as const) {
  const ignore = provider === "webgpu" && adapter === undefined;
  Deno.test({
    name: `ort-${provider} gives plain's bits${ignore ? skipped : ""}`,
    ignore,
    fn: async (t) => {
      const { logger, warnings } = counting();
      const kernel = await OrtKernel.open({ provider, fallback: plain, logger });
      try {
        await t.step("every node is where the kernel's name says", () => {
          assertEquals(kernel.name, `ort-${provider}`);
          assertEquals(kernel.opened.placements, [
            provider === "webgpu" ? "WebGpuExecutionProvider" : "CPUExecutionProvider",
          ]);
          if (provider === "webgpu") {
            assertEquals(kernel.opened.adapter, adapter!.name);
            assertEquals(kernel.opened.software, adapter!.software);
          }
        });

        await t.step("at every length, with any number of sources, aligned or not", async () => {
          const arena = new Arena();
          const random = new Random(11);
          await inBatches([...lengths(5_000), (1 << 20) + 3], async (length) => {
            const count = length > 1e6 ? 3 : random.below(11);
            const misalignment = random.below(4) === 0 ? random.below(4) : 0;
            const sources = Array.from({ length: count }, () => {
              const values = awkward(random, length);
              if (random.below(3) === 0) return values;
              const run = arena.alloc(values.length + misalignment).subarray(misalignment);
              run.set(values);
              return run;
            });
            const factor = random.below(3) === 0 ? undefined : 1 / (1 + random.below(9));
            const first = random.below(count + 1);
            const expected = new Uint8Array(length * 4);
            await fold(plain, expected, sources, factor, first);
            const out = await fold(kernel, arena.alloc(length * 4), sources, factor, first);
            assertSameBits(out, expected, `${count} sources of ${length} values x ${factor}`);
          });
        });

        await t.step("scaling in place", async () => {
          for (const length of [0, 1, 5, 1000]) {
            const values = awkward(new Random(12), length);
            const expected = values.slice();
            plain.scale(expected, 1 / 3);
            await kernel.scale(values, 1 / 3);
            assertSameBits(values, expected, `${length} values`);
          }
        });

        await t.step("200 sums at once", async () => {
          const arena = new Arena();
          const random = new Random(13);
          await Promise.all(Array.from({ length: 200 }, async (_, i) => {
            const sources = [0, 1, 2].map(() => inArena(arena, awkward(random, 100 + i)));
            const expected = await fold(plain, new Uint8Array(400 + 4 * i), sources, 0.5);
            // The parts are not awaited one by one: their order is the kernel's business.
            const out = arena.alloc(expected.length);
            const sum = kernel.begin(out);
            sum.add(sources.slice(0, 1));
            sum.add(sources.slice(1));
            await sum.finish(0.5);
            assertSameBits(out, expected, `sum ${i}`);
          }));
        });

        if (provider === "webgpu") {
          await t.step("a tensor of 128 MiB and 4 bytes, beyond one binding", async () => {
            const arena = new Arena();
            const bytes = (128 << 20) + 4;
            const sources = [1, 2].map((seed) => nearOne(arena, seed, bytes));
            const out = await fold(kernel, arena.alloc(bytes), sources, 0.25);
            const simd = SimdKernel.create(arena);
            const expected = await fold(simd, sources[0]!, sources, 0.25);
            const a = new Int32Array(out.buffer, out.byteOffset, bytes / 4);
            const b = new Int32Array(expected.buffer, expected.byteOffset, bytes / 4);
            let differing = 0;
            for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) differing++;
            assertEquals(differing, 0);
          });
        }

        await t.step("1,000 sums leave no memory behind", async () => {
          const arena = new Arena();
          const sources = [1, 2].map((seed) => nearOne(arena, seed, 256 << 10));
          const outs = Array.from({ length: BATCH }, () => arena.alloc(256 << 10));
          let after100 = 0;
          for (let done = 0; done < 1000; done += BATCH) {
            await inBatches(outs, async (out) => void await fold(kernel, out, sources, 0.5));
            if (done === 100) after100 = Deno.memoryUsage().rss;
          }
          // One buffer left behind each time would be 225 MiB.
          const grown = (Deno.memoryUsage().rss - after100) / (1 << 20);
          assert(grown < 96, `${grown.toFixed(0)} MiB more after 900 sums`);
        });

        assertEquals(kernel.failure, undefined);
        assertEquals(warnings, []);
      } finally {
        await kernel.close();
      }
      await t.step("once closed, its fallback sums", async () => {
        const sources = [awkward(new Random(14), 100)];
        const expected = await fold(plain, new Uint8Array(400), sources);
        assertSameBits(await fold(kernel, new Uint8Array(400), sources), expected, "closed");
      });
    },
  });
}

Deno.test({
  name: `a device destroyed in mid-round costs one log line and no result${skipped}`,
  ignore: adapter === undefined,
  fn: async () => {
    const { logger, warnings } = counting();
    const kernel = await OrtKernel.open({
      provider: "webgpu",
      fallback: plain,
      logger,
      chunkBytes: 1 << 20,
    });
    try {
      const arena = new Arena();
      const random = new Random(21);
      const bytes = 16 << 20;
      const sources = [1, 2, 3].map((seed) => nearOne(arena, seed, bytes));
      const expected = await fold(plain, new Uint8Array(bytes), sources, 0.5);
      const waiting = [0, 1].map(() => awkward(random, 1000));
      const expectedWaiting = await fold(plain, new Uint8Array(4000), waiting);

      // The first source is also the target: what was delivered before the end must not be added again.
      const out = sources[0]!;
      const original = out.slice(0, 4);
      const sum = kernel.begin(out);
      await sum.add(sources);
      const other = kernel.begin(new Uint8Array(4000));
      await other.add(waiting.slice(0, 1));
      const third = arena.alloc(4000);
      const untouched = kernel.begin(third);
      untouched.add(waiting);
      const finished = sum.finish(0.5);
      const firstPiece = () => out.subarray(0, 4).some((byte, i) => byte !== original[i]);
      while (!firstPiece()) await new Promise((resolve) => setTimeout(resolve, 1));
      kernel.destroyDevice();
      await finished;
      assertSameBits(out, expected, "the sum that was being delivered");
      await untouched.finish();
      assertSameBits(third, expectedWaiting, "the sum that was waiting");
      await other.add(waiting.slice(1));
      await other.finish();

      assertSameBits(
        await fold(kernel, new Uint8Array(4000), waiting),
        expectedWaiting,
        "a later sum",
      );
      const scaled = waiting[0]!.slice();
      const expectedScaled = waiting[0]!.slice();
      plain.scale(expectedScaled, 0.5);
      await kernel.scale(scaled, 0.5);
      assertSameBits(scaled, expectedScaled, "scaling");

      assertEquals(warnings.length, 1, warnings.join("\n"));
      assertStringIncludes(warnings[0]!, "ort-webgpu");
      assertStringIncludes(warnings[0]!, "summed by plain");
      // A run that was under way fails before the loss is told.
      assertMatch(kernel.failure!, /lost|validation error/);
    } finally {
      await kernel.close();
    }
  },
});

Deno.test("a worker that does not answer in time costs its work and no result", async () => {
  const { logger, warnings } = counting();
  const kernel = await OrtKernel.open({ provider: "wasm", fallback: plain, logger, silenceMs: 1 });
  try {
    const sources = [1, 2, 3, 4].map((seed) => nearOne(new Arena(), seed, 4 << 20));
    const expected = await fold(plain, new Uint8Array(4 << 20), sources, 0.5);
    assertSameBits(await fold(kernel, new Uint8Array(4 << 20), sources, 0.5), expected, "late");
    assertEquals(warnings.length, 1);
    assertStringIncludes(warnings[0]!, "no word from its worker for 1 ms");
  } finally {
    await kernel.close();
  }
});

Deno.test("an opening that takes too long is refused with its reason", async () => {
  const error = await assertRejects(
    () => OrtKernel.open({ provider: "wasm", fallback: plain, openMs: 1 }),
    OrtUnavailable,
  ) as Error;
  assertStringIncludes(error.message, "within 1 ms");
});

Deno.test("placements are read from ONNX Runtime's log", () => {
  const line = (text: string) => `2026-01-01 [V:onnxruntime:, session_state.cc:1380] ${text}\n`;
  assertEquals(placementsIn(""), []);
  assertEquals(
    placementsIn(line(" All nodes placed on [WebGpuExecutionProvider]. Number of nodes: 3")),
    ["WebGpuExecutionProvider"],
  );
  assertEquals(
    placementsIn(
      line(" Node(s) placed on [WebGpuExecutionProvider]. Number of nodes: 1") +
        line(" Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2"),
    ),
    ["WebGpuExecutionProvider", "CPUExecutionProvider"],
  );
});

Deno.test({
  name: `a model that ONNX Runtime leaves on the CPU is refused as webgpu${skipped}`,
  ignore: adapter === undefined,
  fn: async () => {
    const worker = new Worker(new URL("./placement_worker.ts", import.meta.url), {
      type: "module",
    });
    try {
      const results = await new Promise((resolve, reject) => {
        worker.onmessage = (event) => resolve(event.data);
        worker.onerror = (event) => reject(new Error(event.message));
      });
      assertEquals(results, {
        Add: "created",
        Sum: "ONNX Runtime placed nodes on CPUExecutionProvider, " +
          "expected all on WebGpuExecutionProvider",
      });
    } finally {
      worker.terminate();
    }
  },
});
