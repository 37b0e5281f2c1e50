/**
 * `deno task bench`: Tierfold as real processes beside torch gloo, OpenMPI over TCP and a plain socket
 * echo, interleaved in one run. Prints a table, writes plots, and with --docs the report's data.
 *
 *     deno task bench [--quick] [--json FILE] [--out DIR] [--docs] [--ranks 1,4] [--sizes 4KB,64MiB]
 *                     [--runs N] [--only tierfold,gloo]
 *
 * @module
 */

import { Command } from "commander";
import { benchPlots } from "./bench_plots.ts";
import { boundMs } from "./bound.ts";
import type { Contender } from "./contender.ts";
import { echo } from "./contenders/echo.ts";
import { gloo } from "./contenders/gloo.ts";
import { mpi } from "./contenders/mpi.ts";
import { tierfold, tierfoldBf16 } from "./contenders/tierfold.ts";
import type { BenchFigures } from "./figures.ts";
import { rawFigures, significant } from "./figures.ts";
import { measureHashRate } from "./hash_rate.ts";
import { describeMachine, machineLine } from "./machine.ts";
import { measure } from "./measure.ts";
import type { OutputOptions } from "./output.ts";
import { endOnSignal, writeFigures } from "./output.ts";
import { FULL, QUICK } from "./plan.ts";
import type { BenchPlan } from "./plan.ts";
import { parseSize } from "./sizes.ts";
import { asText, benchTable } from "./table.ts";

/** In the order of one run. */
const CONTENDERS: readonly Contender[] = [tierfold, gloo, echo, tierfoldBf16, mpi];

/** The round that the top-level bound speaks of. */
const REFERENCE = { ranks: 4, hosts: 1, wireBytes: 64 * 1024 ** 2 };

/** Options of the command line. */
interface Options extends OutputOptions {
  quick?: true;
  ranks?: string;
  sizes?: string;
  runs?: string;
  only?: string;
}

/** Measures a plan and returns every figure. */
export async function bench(
  plan: BenchPlan,
  contenders: readonly Contender[],
  progress: (line: string) => void,
): Promise<BenchFigures> {
  const startedAt = performance.now();
  const machine = describeMachine();
  progress(machineLine(machine));
  const hash = await measureHashRate(plan.hashPassSeconds);
  const rate = (value: number) => `${value.toFixed(2)} GB/s`;
  progress(`HMAC-SHA256: ${rate(hash.alone)} one core alone, ${rate(hash.together)} each together`);
  const { rows, skipped } = await measure({ plan, contenders, hash, startedAt, progress });
  return {
    date: new Date().toISOString(),
    machine,
    hash_gb_s: significant(hash.alone),
    hash_all_gb_s: significant(hash.together),
    bound_ms: significant(boundMs(REFERENCE, hash.alone, machine.cores)),
    runs: plan.runs,
    rows,
    skipped,
  };
}

/** The plan and the contenders that the options ask for. */
function choose(options: Options): { plan: BenchPlan; contenders: readonly Contender[] } {
  const preset = options.quick ? QUICK : FULL;
  const list = (text: string) => text.split(",").map((item) => item.trim());
  const names = options.only === undefined ? undefined : list(options.only);
  const unknown = names?.find((name) => !CONTENDERS.some((contender) => contender.name === name));
  if (unknown !== undefined) {
    const known = CONTENDERS.map((contender) => contender.name).join(", ");
    throw new RangeError(`--only: nobody is called "${unknown}"; known are ${known}`);
  }
  const ranks = options.ranks === undefined ? preset.ranks : list(options.ranks).map(Number);
  if (ranks.some((count) => !Number.isInteger(count) || count < 1)) {
    throw new RangeError(`--ranks: "${options.ranks}" is not a list of whole numbers from 1`);
  }
  const runs = options.runs === undefined ? preset.runs : Number(options.runs);
  if (!Number.isInteger(runs) || runs < 1) {
    throw new RangeError(`--runs: "${options.runs}" is not a whole number from 1`);
  }
  const sizes = options.sizes === undefined ? preset.sizes : list(options.sizes).map(parseSize);
  return {
    plan: { ...preset, ranks, runs, sizes: sizes.toSorted((a, b) => a - b) },
    contenders: CONTENDERS.filter((contender) => names?.includes(contender.name) ?? true),
  };
}

async function main(): Promise<void> {
  const options = new Command("bench").description("Measures full rounds side by side with peers.")
    .option("--quick", "finish in a minute")
    .option("--json <file>", "write the raw figures")
    .option("--out <dir>", "folder for plots and detailed figures", "bench/out")
    .option("--docs", "write them to docs/performance instead, for deno task bench:report")
    .option("--ranks <list>", "numbers of ranks, such as 1,4")
    .option("--sizes <list>", "bytes per rank, such as 4KB,64MiB")
    .option("--runs <n>", "interleaved runs of every row")
    .option("--only <names>", "contenders, such as tierfold,gloo")
    .parse(Deno.args, { from: "user" }).opts<Options>();
  const { plan, contenders } = choose(options);
  const figures = await bench(plan, contenders, (line) => console.error(line));

  console.log(asText(benchTable(figures.rows)));
  for (const { name, ranks, bytes, reason } of figures.skipped) {
    console.log(`skipped: ${name} ranks ${ranks || "all"} bytes ${bytes || "all"}: ${reason}`);
  }
  await writeFigures("bench", figures, benchPlots(figures.rows), options, rawFigures(figures));
}

if (import.meta.main) {
  endOnSignal();
  await main();
  Deno.exit(0);
}
