/**
 * The digits example's processes, seen from the one that starts them.
 *
 * @module
 */

import { type Cluster, startRank } from "../cluster.ts";
import { LiveLine } from "../live_line.ts";
import { ProcessError, type ProcessGroup } from "../processes.ts";
import {
  type BaselineReport,
  type EndReport,
  parseReport,
  type ProgressReport,
  type StartReport,
} from "./report.ts";
import { count, describeShard } from "./results.ts";
import { RoundBoard, type RoundSummary } from "./rounds.ts";

/** How long relays and controller may take to end after the last rank has closed, in milliseconds. */
const END_MS = 15_000;

/** Ranks that train with PyTorch instead of TensorFlow.js: the last ones. */
export interface TorchRanks {
  readonly count: number;
  /** The Python to run them with. */
  readonly python: string;
}

/**
 * Runs all ranks to the end, showing shards and rounds.
 *
 * @returns What each rank ended with, in rank order.
 * @throws {ProcessError} when the cluster does not end by itself afterwards.
 */
export async function runRanks(
  group: ProcessGroup,
  cluster: Cluster,
  rounds: number,
  seed: number,
  wire: "f32" | "bf16",
  torch: TorchRanks,
): Promise<EndReport[]> {
  const { worldSize } = cluster;
  const live = new LiveLine();
  const board = new RoundBoard(worldSize);
  const starts: StartReport[] = [];
  const ends: EndReport[] = [];
  const onLine = (line: string) => {
    const report = parseReport(line);
    if (report.kind === "start" && starts.push(report) === worldSize) {
      starts.sort((a, b) => a.rank - b.rank);
      live.keep();
      console.log(`Ranks with their shards:\n${starts.map(describeShard).join("\n")}`);
    } else if (report.kind === "round") {
      const summary = board.add(report);
      if (summary) live.show(describeRound(summary, rounds, worldSize));
    } else if (report.kind === "end") {
      ends.push(report);
    }
  };
  const script = new URL("./rank.ts", import.meta.url);
  const args = [`${rounds}`, `${seed}`, wire];
  const inPython = {
    script: new URL("../pytorch_local_sgd.py", import.meta.url),
    args: ["--rounds", `${rounds}`, "--seed", `${seed}`, "--deno", Deno.execPath()],
    interpreter: torch.python,
    onLine,
  };
  const ranks = Array.from({ length: worldSize }, (_, rank) => {
    const plan = rank < worldSize - torch.count ? { script, args, onLine } : inPython;
    return startRank(group, cluster, rank, plan);
  });
  live.show("Ranks load their digits and take their places.");
  await Promise.all(ranks.map(({ ended }) => ended));
  live.keep();
  if (ends.length < worldSize) {
    throw new ProcessError(`${worldSize - ends.length} ranks ended without a result`);
  }
  await endOfCluster(cluster);
  return ends.sort((a, b) => a.rank - b.rank);
}

/** Relays and controller end by themselves once every rank has closed. */
async function endOfCluster({ servers }: Cluster): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    const message = `relays and controller still run ${END_MS} ms after the last rank closed`;
    timer = setTimeout(() => reject(new ProcessError(message)), END_MS);
  });
  try {
    await Promise.race([Promise.all(servers.map(({ ended }) => ended)), late]);
  } finally {
    clearTimeout(timer);
  }
}

function describeRound(
  { round, loss, roundMs, averageMs, bytesUp }: RoundSummary,
  rounds: number,
  ranks: number,
): string {
  const number = `${round}`.padStart(`${rounds}`.length);
  const kilobytes = (bytesUp / ranks / 1000).toFixed(0);
  // At most 80 columns, or a terminal would cut it.
  return `round ${number}/${rounds}  loss ${loss.toFixed(3)}  ${
    roundMs.toFixed(0).padStart(4)
  } ms, ` +
    `averaging ${averageMs.toFixed(1).padStart(4)} ms  up ${ranks} x ${kilobytes} kB`;
}

/**
 * Runs what the consensus is compared with: two processes of equal work, side by side.
 *
 * @returns Each rank's shard alone, and all digits in one process.
 */
export async function runBaselines(
  group: ProcessGroup,
  worldSize: number,
  rounds: number,
  seed: number,
): Promise<{ alone: BaselineReport[]; all: BaselineReport }> {
  const live = new LiveLine();
  const progress = new Map<string, ProgressReport>();
  const results: BaselineReport[] = [];
  const start = (mode: "alone" | "all") =>
    group.start({
      name: `the ${mode} run`,
      script: new URL("./baseline.ts", import.meta.url),
      permissions: [],
      args: [mode, `${worldSize}`, `${rounds}`, `${seed}`],
      onLine: (line) => {
        const report = parseReport(line);
        if (report.kind === "baseline") results.push(report);
        else if (report.kind === "progress") {
          progress.set(mode === "all" ? "all digits" : mode, report);
          live.show(
            [...progress].map(([name, { steps, of }]) =>
              `  ${name} ${count(steps)}/${count(of)} steps`
            ).join("  "),
          );
        }
      },
    });
  await Promise.all([start("alone").ended, start("all").ended]);
  live.keep();
  const all = results.find(({ rank }) => rank === undefined);
  const alone = results.filter(({ rank }) => rank !== undefined);
  if (all === undefined || alone.length < worldSize) {
    throw new ProcessError("a run without averaging ended without a result");
  }
  return { alone, all };
}
