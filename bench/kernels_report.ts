/**
 * The kernels' figures as a page and a plot.
 *
 * @module
 */

import { BOUND, type Contender, INPUTS, type KernelFigures } from "./kernels_measure.ts";
import { linePlot } from "./plot.ts";
import { formatSize } from "./sizes.ts";

const MiB = 1 << 20;
/** The size at which the bound is to be reached, and how much of it. */
const JUDGED_BYTES = 64 * MiB;
const WANTED = 0.9;

const SOFTWARE = " That is a software adapter: the figures\n  show that the path works and say " +
  "nothing about a GPU, whose crossover was not measured here. `auto` never takes one.";

const percent = (ratio: number) => `${(100 * ratio).toFixed(0)} %`;

/** All contenders of a run, in the order of the first row. */
function contenders(figures: KernelFigures): Contender[] {
  return Object.keys(figures.rows[0]?.rates ?? {}) as Contender[];
}

/** The rates as a Markdown table, with simd's ratios to the bound and to plain. */
export function kernelTable(figures: KernelFigures): string {
  const others = contenders(figures).filter((name) => name.startsWith("ort"));
  const rows = figures.rows.map(({ bytes, rates }) => {
    const { memcpy = NaN, simd = NaN, plain = NaN } = rates;
    return [
      formatSize(bytes),
      memcpy.toFixed(1),
      (memcpy * BOUND).toFixed(1),
      simd.toFixed(1),
      percent(simd / (memcpy * BOUND)),
      plain.toFixed(1),
      `${(simd / plain).toFixed(1)} x`,
      ...others.map((name) => (rates[name] ?? NaN).toPrecision(2)),
    ];
  });
  const head = [
    "one input",
    "memcpy",
    "bound",
    "simd",
    "simd / bound",
    "plain",
    "simd / plain",
    ...others,
  ];
  return [head, head.map(() => "---:"), ...rows].map((row) => `| ${row.join(" | ")} |`).join("\n");
}

/** What the run says about the two numbers to reach. */
export function kernelVerdict(figures: KernelFigures): string {
  const slower = figures.rows.filter(({ rates }) => rates.simd! < rates.plain!);
  const never = slower.length === 0
    ? "simd was faster than plain at every size"
    : `simd was slower than plain at ${slower.map(({ bytes }) => formatSize(bytes)).join(", ")}`;
  const judged = figures.rows.find(({ bytes }) => bytes === JUDGED_BYTES);
  if (judged === undefined) return `${never}.`;
  const ratio = judged.rates.simd! / (judged.rates.memcpy! * BOUND);
  return `${never}. At ${formatSize(JUDGED_BYTES)} simd reached ${percent(ratio)} of the bound ` +
    `(to reach: ${percent(WANTED)}${ratio < WANTED ? ", missed in this run" : ""}).`;
}

/** The plot of all contenders over the size of an input. */
export function kernelPlot(figures: KernelFigures): string {
  return linePlot({
    title: `Fold of ${INPUTS} inputs`,
    xLabel: "size of one input",
    yLabel: "GB/s of input",
    xLog: true,
    yLog: true,
    xTick: formatSize,
    series: contenders(figures).map((name) => ({
      name,
      points: figures.rows.map(({ bytes, rates }) => [bytes, rates[name] ?? NaN] as const),
    })),
  });
}

/** The page under docs/performance. */
export function kernelPage(figures: KernelFigures, machine: string): string {
  const missing = Object.entries(figures.missing)
    .map(([name, reason]) => `\n- ${name} is missing: ${reason}`).join("");
  const adapter = figures.adapter === undefined
    ? ""
    : `\n- ort-webgpu ran on ${figures.adapter.name}; its figures include all transfers.${
      figures.adapter.software ? SOFTWARE : ""
    }`;
  return `# Kernels

\`deno task bench:kernels\` on ${machine}. Medians of ${figures.rounds} samples (fewer of
a slow one); memcpy, simd and plain take turns. GB/s are 1e9 bytes of input a second. ${
    kernelVerdict(figures)
  }

${kernelTable(figures)}

![GB/s of input over the size of one input, one line a kernel](kernels.svg)

- A fold adds ${INPUTS} inputs, one after another, from +0.0 into a fifth run of memory, as a relay with ${INPUTS} ranks does.
- memcpy copies one input between two ordinary arrays.
- bound: a fold that moves bytes as fast as memcpy does. A copy reads one byte for every byte that it
  writes, a fold of ${INPUTS} reads ${INPUTS}; so the bound on its input is ${
    BOUND.toFixed(1)
  } x memcpy's rate. In the caches it says little.${adapter}${missing}
`;
}
