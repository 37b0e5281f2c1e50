/**
 * How fast the kernels fold, next to memcpy: `deno task bench:kernels`.
 *
 *     --quick     small sizes, CPU kernels only: a few seconds
 *     --docs      also writes docs/performance/kernels.md and its plot
 *
 * @module
 */

import { type KernelPlan, measureKernels } from "./kernels_measure.ts";
import { kernelPage, kernelPlot, kernelTable, kernelVerdict } from "./kernels_report.ts";
import { describeMachine, machineLine } from "./machine.ts";
import { DOCS_FOLDER } from "./output.ts";
import { formatSize } from "./sizes.ts";

const KiB = 1024;
const MiB = 1024 * KiB;

const quick = Deno.args.includes("--quick");
const plan: KernelPlan = {
  sizes: quick
    ? [4 * KiB, 64 * KiB, MiB]
    : [4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, MiB, 4 * MiB, 16 * MiB, 64 * MiB, 256 * MiB],
  rounds: quick ? 9 : 21,
  providers: quick ? [] : ["wasm", "webgpu"],
  progress: (bytes, what) => console.error(`measured ${formatSize(bytes)} ${what}`),
};
const machine = machineLine(describeMachine());
const figures = await measureKernels(plan);
console.log(`${machine}\n\n${kernelTable(figures)}\n\n${kernelVerdict(figures)}`);
if (figures.adapter !== undefined) console.log(`ort-webgpu ran on ${figures.adapter.name}`);
for (const [name, reason] of Object.entries(figures.missing)) {
  console.log(`${name} is missing: ${reason}`);
}
if (Deno.args.includes("--docs")) {
  await Deno.mkdir(DOCS_FOLDER, { recursive: true });
  await Deno.writeTextFile(`${DOCS_FOLDER}/kernels.md`, kernelPage(figures, machine));
  await Deno.writeTextFile(`${DOCS_FOLDER}/kernels.svg`, kernelPlot(figures));
}
