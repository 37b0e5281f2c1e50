import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { findAdapter } from "../../kernels/adapter.ts";
import { Arena } from "../../kernels/arena.ts";
import { chooseKernel, type ChosenKernel } from "../../kernels/choose.ts";
import { CPU_LADDER } from "../../kernels/ladder.ts";
import { PlainKernel } from "../../kernels/plain.ts";
import { assertSameBits, awkward, Random } from "./values.ts";

const adapter = await findAdapter();

async function assertSums(kernel: ChosenKernel): Promise<void> {
  const plain = new PlainKernel();
  for (const length of [0, 3, 5_000]) {
    const sources = [1, 2, 3].map((seed) => awkward(new Random(seed), length));
    const results = [plain, kernel].map(async (kernel) => {
      const out = new Uint8Array(length * 4);
      const sum = kernel.begin(out);
      await sum.add(sources);
      await sum.finish(1 / 3);
      await kernel.scale(out, 3);
      return out;
    });
    const [expected, actual] = await Promise.all(results);
    assertSameBits(actual!, expected!, `${length} values by ${kernel.name}`);
  }
}

for (const request of ["plain", "simd"] as const) {
  Deno.test(`${request} by name`, async () => {
    const kernel = await chooseKernel({ request, arena: new Arena() });
    assertEquals(kernel.name, request);
    assertEquals(kernel.describe(), {
      requested: request,
      cpu: request,
      gpu: undefined,
      gpuFromBytes: undefined,
      adapter: undefined,
      softwareAdapter: false,
      flushesSubnormals: false,
      notes: [],
      rungs: [],
      fromCache: false,
    });
    await assertSums(kernel);
    await kernel.close();
  });
}

Deno.test("ort-wasm by name sums from the threshold on, simd below it", async () => {
  const large = await chooseKernel({
    request: "ort-wasm",
    gpuThresholdBytes: 4096,
    arena: new Arena(),
  });
  try {
    assertEquals(large.kernelFor(4092).name, "simd");
    assertEquals(large.kernelFor(4096).name, "ort-wasm");
    await assertSums(large);
  } finally {
    await large.close();
  }
});

Deno.test("auto measures the CPU kernels at every size and takes no software adapter", async () => {
  const kernel = await chooseKernel({ request: "auto", arena: new Arena() });
  try {
    const { rungs, cpu, gpu, adapter: name, softwareAdapter, fromCache } = kernel.describe();
    assertEquals([cpu, fromCache], ["simd", false]);
    assertEquals([name, softwareAdapter], [adapter?.name, adapter?.software ?? false]);
    for (const bytes of CPU_LADDER) {
      const rung = rungs.find((rung) => rung.bytes === bytes);
      assert(rung !== undefined && rung.rates.plain! > 0 && rung.rates.simd! > 0, `${bytes}`);
    }
    if (adapter === undefined || adapter.software) {
      assertEquals(gpu, undefined);
      assertEquals(rungs.map(({ rates }) => rates["ort-webgpu"]), rungs.map(() => undefined));
    }
    await assertSums(kernel);
  } finally {
    await kernel.close();
  }
});

Deno.test("auto keeps what it measured in a file, and replaces a broken one", async () => {
  const folder = await Deno.makeTempDir();
  const cacheFile = `${folder}/kernels.json`;
  const choose = async () => {
    const kernel = await chooseKernel({ request: "auto", arena: new Arena(), cacheFile });
    await assertSums(kernel);
    await kernel.close();
    return kernel.describe();
  };
  try {
    const first = await choose();
    assertEquals(first.fromCache, false);
    const second = await choose();
    assertEquals(second, { ...first, fromCache: true });

    // Another machine's entry in the same file is left alone.
    const file = JSON.parse(await Deno.readTextFile(cacheFile));
    const other = { ...file.ladders[0], key: "another machine" };
    file.ladders[0].key += " that differs";
    file.ladders.push(other);
    await Deno.writeTextFile(cacheFile, JSON.stringify(file));
    assertEquals((await choose()).fromCache, false);
    const kept = JSON.parse(await Deno.readTextFile(cacheFile)).ladders;
    assertEquals(kept.length, 3);
    assertEquals(kept[1], other);

    const broken = ["", "{", '{"format":2,"ladders":[]}', JSON.stringify({ ...file, format: 0 })];
    for (const text of broken) {
      await Deno.writeTextFile(cacheFile, text);
      assertEquals((await choose()).fromCache, false, text);
      assertEquals((await choose()).fromCache, true, text);
    }
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name), ["kernels.json"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a cache file that cannot be written costs the cache, not the start", async () => {
  const cacheFile = "/dev/null/kernels.json";
  const kernel = await chooseKernel({ request: "auto", arena: new Arena(), cacheFile });
  await assertSums(kernel);
  await kernel.close();
});

Deno.test("ort-webgpu without an adapter: one warning, and the CPU sums", async () => {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "--allow-all", new URL("./no_adapter.ts", import.meta.url).href],
    env: { DENO_WEBGPU_BACKEND: "dx12", NO_COLOR: "1" },
  }).output();
  assertEquals(code, 0, new TextDecoder().decode(stderr));
  const result = JSON.parse(new TextDecoder().decode(stdout));
  assertEquals(result.out, [1.5, 0, 5e7]);
  assertEquals(result.kernel, "simd");
  assertEquals(result.described.requested, "ort-webgpu");
  assertEquals(result.described.gpu, undefined);
  assertEquals(result.warnings, result.described.notes);
  assertEquals(result.warnings.length, 1);
  assertStringIncludes(result.warnings[0], "ort-webgpu is not used, simd sums instead");
  assertStringIncludes(result.warnings[0], "Failed to get GPU adapter");
});
