/**
 * `deno task bench:hosts`: rounds across hosts, each a network namespace behind a shaped link, beside
 * gloo in the same namespaces. Needs root and Debian's iproute2; cleans up after itself on any exit.
 *
 *     deno task bench:hosts [--quick] [--runs N] [--json FILE] [--out DIR] [--docs]
 *
 * @module
 */

import { Command } from "commander";
import { glooUnavailable } from "./contenders/gloo.ts";
import type { Skip } from "./figures.ts";
import type { HostsFigures, HostsName } from "./hosts_figures.ts";
import { formatLink, hostsTable, RING_WINS, uplinkTable } from "./hosts_figures.ts";
import type { HostsPlan, Watch } from "./hosts_measure.ts";
import { measureHosts, measureUplink } from "./hosts_measure.ts";
import { describeMachine, machineLine } from "./machine.ts";
import type { Network } from "./netns.ts";
import { networkUnavailable } from "./netns.ts";
import { hostsPlots } from "./hosts_plots.ts";
import { endOnSignal, writeFigures } from "./output.ts";
import { asText } from "./table.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

/** What the whole bench measures, or a short part of it. */
function plans(quick: boolean, runs: number, names: readonly HostsName[]): HostsPlan[] {
  const sizes = quick ? [4_000, MIB] : [4_000, 64 * KIB, MIB, 16 * MIB];
  const common = { ranksPerHost: 2, sizes, runs, names, secondsPerRun: quick ? 3 : 15 };
  return (quick ? [1e9] : [1e9, 1e8]).flatMap((bitsPerSecond) =>
    (quick ? [2] : [2, 4]).map((hosts) => ({ hosts, bitsPerSecond, ...common }))
  );
}

async function main(): Promise<number> {
  const options = new Command("bench:hosts").description("Measures rounds across shaped links.")
    .option("--quick", "2 hosts, 1 Gbit/s, up to 1 MiB")
    .option("--runs <n>", "interleaved runs of every row")
    .option("--json <file>", "write the figures")
    .option("--out <dir>", "folder for plots and figures", "bench/out")
    .option("--docs", "write them to docs/performance instead, for deno task bench:report")
    .parse(Deno.args, { from: "user" })
    .opts<{ quick?: true; runs?: string; json?: string; out: string; docs?: true }>();

  const quick = options.quick ?? false;
  const runs = Number(options.runs ?? (quick ? 1 : 3));
  if (!Number.isInteger(runs) || runs < 1) {
    throw new RangeError(`--runs: "${options.runs}" is not a whole number from 1`);
  }

  const reason = await networkUnavailable();
  if (reason !== undefined) {
    console.log(`skipped: bench across hosts, ${reason}`);
    return 0;
  }
  const skipped: Skip[] = [];
  const names: HostsName[] = ["tierfold", "tierfold-beside"];
  const noGloo = await glooUnavailable();
  if (noGloo === undefined) names.push("gloo");
  else skipped.push({ name: "gloo", ranks: 0, bytes: 0, reason: noGloo });

  let standing: Network | undefined;
  const watch: Watch = (network) => standing = network;
  endOnSignal(() => standing?.remove());

  const machine = describeMachine();
  console.error(machineLine(machine));
  const rows: HostsFigures["rows"] = [];
  for (const plan of plans(quick, runs, names)) {
    console.error(`${plan.hosts} hosts x ${plan.ranksPerHost}, ${formatLink(plan.bitsPerSecond)}`);
    rows.push(...await measureHosts(plan, watch, (line) => console.error(line)));
  }
  console.error("traffic per host for 1, 2, 4 and 8 ranks on it");
  const uplink = await measureUplink([1, 2, 4, 8], { bytes: MIB, warm: 2, rounds: 20 }, watch);

  console.log(asText(hostsTable(rows)));
  console.log("\nBytes per host and round:\n" + asText(uplinkTable(uplink)));
  console.log(`\n${RING_WINS}`);
  for (const { name, reason } of skipped) console.log(`skipped: ${name}, ${reason}`);
  const figures: HostsFigures = {
    date: new Date().toISOString(),
    machine,
    rows,
    uplink,
    skipped,
  };
  await writeFigures("hosts", figures, hostsPlots(rows), options);
  return 0;
}

if (import.meta.main) Deno.exit(await main());
