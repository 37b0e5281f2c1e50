/**
 * `deno task bench:soak`: many rounds without an error and without growth. 256 ranks on 32 relays with
 * tiny frames for 1,000 rounds, and 200 rounds of 64 MiB.
 *
 *     deno task bench:soak [--quick] [--only many|large] [--json FILE] [--out DIR] [--docs]
 *
 * 32 ranks share a process in the first soak, each with a connection, a tensor and a round of its own:
 * 256 more Deno processes would take the machine's memory, and would measure little of Tierfold.
 *
 * @module
 */

import { Command } from "commander";
import { startCluster } from "./cluster.ts";
import { median, quantile, significant } from "./figures.ts";
import { describeMachine, machineLine } from "./machine.ts";
import { endOnSignal, writeFigures } from "./output.ts";
import { RssSampler } from "./rss_sampler.ts";
import type { SoakFigures, SoakResult } from "./soak_figures.ts";
import { soakPlot, soakTable } from "./soak_figures.ts";
import { asText } from "./table.ts";

/** One soak. */
export interface SoakPlan {
  /** Its name in figures and files. */
  name: string;
  /** Relays, each a process. */
  relays: number;
  /** Ranks of each. */
  ranksPerRelay: number;
  /** Ranks that share a process. */
  ranksPerProcess: number;
  /** f32 bytes per rank. */
  bytes: number;
  /** Measured rounds. */
  rounds: number;
  /** Between two looks at the memory, in milliseconds. */
  samplePeriodMs: number;
}

const FULL: readonly SoakPlan[] = [
  {
    name: "many",
    relays: 32,
    ranksPerRelay: 8,
    ranksPerProcess: 32,
    bytes: 4_000,
    rounds: 1_000,
    samplePeriodMs: 500,
  },
  {
    name: "large",
    relays: 1,
    ranksPerRelay: 4,
    ranksPerProcess: 1,
    bytes: 64 * 1024 ** 2,
    rounds: 200,
    samplePeriodMs: 1_000,
  },
];

/** The same with a tenth of the ranks, rounds and bytes. */
const QUICK: readonly SoakPlan[] = FULL.map((plan) => ({
  ...plan,
  relays: Math.ceil(plan.relays / 10),
  bytes: plan.bytes > 1e6 ? 4 * 1024 ** 2 : plan.bytes,
  rounds: plan.rounds / 10,
  samplePeriodMs: 100,
}));

/**
 * Runs one soak.
 *
 * @throws {Error} When a round fails or a process ends.
 */
export async function soak(plan: SoakPlan): Promise<SoakResult> {
  const cluster = await startCluster({
    hosts: Array.from({ length: plan.relays }, () => ({ ranks: plan.ranksPerRelay })),
    ranksPerProcess: plan.ranksPerProcess,
  });
  try {
    const { bytes, rounds } = plan;
    let sampler: RssSampler | undefined;
    let begun = 0;
    let seconds = 0;
    const sample = await cluster.run({ bytes, warm: 2, rounds }, {
      begin: () => {
        sampler = new RssSampler([...cluster.ranks, ...cluster.servers], plan.samplePeriodMs);
        begun = performance.now();
      },
      end: () => seconds = (performance.now() - begun) / 1e3,
    });
    const { samples = [], trends = {} } = sampler?.stop() ?? {};
    const codes = await cluster.close();
    return {
      name: plan.name,
      ranks: plan.relays * plan.ranksPerRelay,
      relays: plan.relays,
      bytes,
      rounds,
      seconds: significant(seconds),
      median_ms: significant(median(sample.ms)),
      p99_ms: significant(quantile(sample.ms, 0.99)),
      clean_end: codes.every((code) => code === 0),
      memory: trends,
      samples,
    };
  } catch (error) {
    await cluster.kill();
    throw error;
  }
}

async function main(): Promise<void> {
  const options = new Command("bench:soak").description("Many rounds: no error, no growth.")
    .option("--quick", "a tenth of ranks, rounds and bytes")
    .option("--only <name>", "many or large")
    .option("--json <file>", "write the figures")
    .option("--out <dir>", "folder for plots and figures", "bench/out")
    .option("--docs", "write them to docs/performance instead, for deno task bench:report")
    .parse(Deno.args, { from: "user" })
    .opts<{ quick?: true; only?: string; json?: string; out: string; docs?: true }>();
  const plans = (options.quick ? QUICK : FULL)
    .filter(({ name }) => options.only === undefined || options.only === name);
  if (plans.length === 0) throw new RangeError(`--only: no soak is called "${options.only}"`);

  const machine = describeMachine();
  console.error(machineLine(machine));
  const soaks: SoakResult[] = [];
  for (const plan of plans) {
    const ranks = plan.relays * plan.ranksPerRelay;
    console.error(`${plan.name}: ${ranks} ranks, ${plan.relays} relays, ${plan.rounds} rounds`);
    const result = await soak(plan);
    soaks.push(result);
    console.error(
      `${plan.name}: ${result.seconds} s, ` +
        (result.clean_end ? "clean end" : "a relay or the controller ended with an error"),
    );
  }
  console.log(asText(soakTable(soaks)));
  const figures: SoakFigures = { date: new Date().toISOString(), machine, soaks };
  await writeFigures("soak", figures, soaks.map(soakPlot), options);
}

if (import.meta.main) {
  endOnSignal();
  await main();
  Deno.exit(0);
}
