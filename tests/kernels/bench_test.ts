import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { type KernelFigures, measureKernels } from "../../bench/kernels_measure.ts";
import { kernelPage, kernelPlot, kernelTable, kernelVerdict } from "../../bench/kernels_report.ts";

Deno.test("the kernels' bench runs, and its page has every size and kernel", async () => {
  const sizes = [4096, 8192];
  const figures = await measureKernels({ sizes, rounds: 2, providers: [] });
  assertEquals(figures.rows.map(({ bytes }) => bytes), sizes);
  for (const { rates } of figures.rows) {
    assertEquals(Object.keys(rates), ["memcpy", "simd", "plain"]);
    for (const rate of Object.values(rates)) assert(rate > 0 && Number.isFinite(rate));
  }
  assertEquals(kernelTable(figures).split("\n").length, 2 + sizes.length);
  const page = kernelPage(figures, "a machine");
  assertStringIncludes(page, "| 4 KiB |");
  const plot = kernelPlot(figures);
  for (const name of ["memcpy", "simd", "plain"]) assertStringIncludes(plot, `>${name}</text>`);
});

Deno.test("the bench's verdict names the sizes at which a number was missed", () => {
  const figures: KernelFigures = {
    rows: [
      { bytes: 4096, rates: { memcpy: 10, simd: 1, plain: 2 } },
      { bytes: 64 << 20, rates: { memcpy: 10, simd: 8, plain: 2 } },
    ],
    missing: { "ort-webgpu": "no adapter" },
    rounds: 3,
  };
  assertEquals(
    kernelVerdict(figures),
    "simd was slower than plain at 4 KiB. At 64 MiB simd reached 50 % of the bound " +
      "(to reach: 90 %, missed in this run).",
  );
  assertStringIncludes(kernelPage(figures, "a machine"), "- ort-webgpu is missing: no adapter");
});
