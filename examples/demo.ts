/**
 * The whole of Tierfold on one machine: a controller, relays and ranks, each a process of its own, train
 * a small network on real digits that are unevenly spread, and show what averaging was worth.
 *
 *     deno task demo [--ranks N] [--hosts N] [--rounds N] [--seed N] [--wire f32|bf16] [--torch N]
 *
 * For the same options the accuracies and the final bits are the same every time and everywhere, unless
 * some ranks train with PyTorch, whose sums depend on its build.
 *
 * @module
 */

import { Command, Option } from "commander";
import { layOutHosts, startCluster } from "./cluster.ts";
import { runBaselines, runRanks } from "./digits/run.ts";
import { judge } from "./digits/results.ts";
import type { ProcessGroup } from "./processes.ts";
import { onStage, within } from "./stage.ts";

/** Above it the smallest shard would not fill a batch. */
const MAX_RANKS = 32;

/** What the command line says. */
interface DemoOptions {
  readonly ranks: number;
  readonly hosts: number;
  readonly rounds: number;
  readonly seed: number;
  readonly wire: "f32" | "bf16";
  readonly torch: number;
  readonly python: string;
}

function parseOptions(args: readonly string[]): DemoOptions {
  const command = new Command("deno task demo")
    .description("Trains on real digits with a cluster of processes on this machine.")
    .option("--ranks <N>", "ranks, each with a shard of its own", within(1, MAX_RANKS), 4)
    .option(
      "--hosts <N>",
      "hosts, each with a relay; at most one per rank",
      within(1, MAX_RANKS),
      2,
    )
    .option("--rounds <N>", "how often to average", within(1, 10_000), 80)
    .option("--seed <N>", "decides shards, first weights and order", within(0, 1_000_000), 1)
    .addOption(
      new Option("--wire <TYPE>", "how weights travel").choices(["f32", "bf16"]).default("f32"),
    )
    .option("--torch <N>", "ranks that train with PyTorch: the last ones", within(0, MAX_RANKS), 0)
    .option("--python <FILE>", "a Python that has PyTorch, for --torch", "python3")
    .allowExcessArguments(false)
    // Unless told, commander asks the environment about colours.
    .configureOutput({ getOutHasColors: () => false, getErrHasColors: () => false })
    .parse(args, { from: "user" });
  const options = command.opts<DemoOptions>();
  const { ranks, hosts, torch, wire } = options;
  if (hosts > ranks) {
    return command.error(`error: --hosts ${hosts}, but --ranks ${ranks}: every host needs a rank`);
  }
  if (torch > ranks) {
    return command.error(`error: --torch ${torch}, but --ranks ${ranks}: there are not so many`);
  }
  if (torch > 0 && wire !== "f32") {
    return command.error(`error: --torch ${torch} and --wire ${wire}: ranks in Python speak f32`);
  }
  return options;
}

/** Runs everything; returns the exit code. */
async function demo(group: ProcessGroup, options: DemoOptions): Promise<number> {
  const { ranks, hosts, rounds, seed, wire, torch, python } = options;
  console.log(
    `Starting 1 controller, ${hosts} relay${hosts === 1 ? "" : "s"} and ${ranks} ` +
      `rank${ranks === 1 ? "" : "s"}${torch === 0 ? "" : ` (${torch} with PyTorch)`}, ` +
      "each a process of its own:",
  );
  const cluster = await startCluster(group, layOutHosts(ranks, hosts));
  for (const host of cluster.hosts) {
    console.log(`  ${host.name}  relay at ${host.relay}, rank ${host.ranks.join(" ")}`);
  }
  const ends = await runRanks(group, cluster, rounds, seed, wire, {
    count: torch,
    python,
  });
  console.log("The same steps without averaging, and one process on all digits, to compare with:");
  const baselines = await runBaselines(group, ranks, rounds, seed);
  const { lines, sameBits } = judge({ ends, ...baselines });
  console.log(`\n${lines.join("\n")}`);
  return sameBits ? 0 : 1;
}

if (import.meta.main) {
  const options = parseOptions(Deno.args);
  Deno.exit(await onStage((group) => demo(group, options)));
}
