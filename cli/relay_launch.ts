/**
 * What a relay can find out from the launcher that started it: the world size, the ranks of its host, the
 * controller's address and its host's name.
 *
 * Launchers number the ranks of a host in one run unless told otherwise (mpirun --map-by node, srun
 * --distribution cyclic). Where that shows, nothing is derived; where it does not, the controller refuses
 * the second relay that claims a rank, and relays refuse ranks that are not theirs.
 *
 * @module
 */

import { isIPv6 } from "node:net";
import {
  askLaunchers,
  countsSlurm,
  expectPlace,
  LaunchError,
  numberIn,
  type Saying,
} from "./launchers.ts";
import type { ReadEnvironment } from "./options.ts";
import type { Launched } from "./spec.ts";
import { formatRanks } from "./values.ts";

/**
 * The world size.
 *
 * @throws {LaunchError} when launchers contradict each other, or the task may be one of relays.
 */
export function launchedWorldSize(env: ReadEnvironment): Launched | undefined {
  const { worldSize } = askLaunchers(env);
  if (worldSize === undefined) return undefined;
  slurmNodes(env);
  return { text: `${worldSize.value}`, from: worldSize.by };
}

/**
 * The ranks of this host.
 *
 * @throws {LaunchError} when launchers contradict each other, or what they say of this host leaves room for
 *   doubt.
 */
export function launchedRanks(env: ReadEnvironment): Launched | undefined {
  const saying = askLaunchers(env);
  const { rank, worldSize, localRank } = saying;
  if (worldSize === undefined) return undefined;
  if (rank !== undefined) expectPlace(rank, worldSize);
  const block = localBlock(saying) ?? slurmBlock(env);
  if (block === undefined) return undefined;
  const { first, count, from } = block;
  const last = first + count - 1;
  if (first < 0 || count < 1 || last >= worldSize.value) {
    throw new LaunchError(
      `${from} make ${first} to ${last} the ranks of this host, which a world size of ` +
        `${worldSize.value} by ${worldSize.by} does not have; name them`,
    );
  }
  if (rank !== undefined && localRank !== undefined && rank.value - localRank.value !== first) {
    throw new LaunchError(
      `${from} make ${first} the first rank of this host, but rank ${rank.value} by ${rank.by} is ` +
        `number ${localRank.value} here by ${localRank.by}: ranks are not placed in one run, name them`,
    );
  }
  return { text: formatRanks(Array.from({ length: count }, (_, i) => first + i)), from };
}

/** Where the controller listens: MASTER_ADDR and MASTER_PORT, unless torchrun itself listens there. */
export function launchedController(env: ReadEnvironment): Launched | undefined {
  const host = env("MASTER_ADDR")?.trim() ?? "";
  const port = numberIn(env, "MASTER_PORT", "");
  if (host === "" || port === undefined) return undefined;
  if (env("TORCHELASTIC_USE_AGENT_STORE") === "True") {
    throw new LaunchError(
      `torchrun itself listens at MASTER_ADDR ${host} and MASTER_PORT ${port.value}: name the ` +
        "controller's own address",
    );
  }
  return {
    text: `${isIPv6(host) ? `[${host}]` : host}:${port.value}`,
    from: "MASTER_ADDR and MASTER_PORT",
  };
}

/** This host's name. */
export function launchedHost(env: ReadEnvironment): Launched | undefined {
  for (const variable of ["SLURMD_NODENAME", "PMIX_HOSTNAME"]) {
    const text = env(variable)?.trim() ?? "";
    if (text !== "") return { text, from: variable };
  }
  const group = numberIn(env, "GROUP_RANK", " (torchrun)");
  return group && { text: `group-${group.value}`, from: group.by };
}

interface Block {
  readonly first: number;
  readonly count: number;
  readonly from: string;
}

/** The run of ranks in which this process's own rank stands. */
function localBlock({ rank, worldSize, localRank, localSize }: Saying): Block | undefined {
  if (localSize === undefined) return undefined;
  const from = (rank === undefined || localRank === undefined)
    ? `${localSize.by}`
    : `${rank.by}, ${localRank.by} and ${localSize.by}`;
  // All ranks are here, so that it does not matter which of them this process is.
  if (localSize.value === worldSize?.value) return { first: 0, count: localSize.value, from };
  if (rank === undefined || localRank === undefined) return undefined;
  return { first: rank.value - localRank.value, count: localSize.value, from };
}

/**
 * Slurm's tasks on each node of this step, where Slurm counts at all.
 *
 * @throws {LaunchError} when there is one on each: `srun --ntasks-per-node=1 deno run relay.ts` is a step of
 *   relays, whose tasks are not the ranks.
 */
function slurmNodes(env: ReadEnvironment): { counts: number[]; variable: string } | undefined {
  const variable = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"].find((name) => env(name));
  if (variable === undefined || !countsSlurm(env)) return undefined;
  const counts = tasksPerNode(env(variable) ?? "", variable);
  if (counts.length > 1 && counts.every((count) => count === 1)) {
    throw new LaunchError(
      `${variable} is ${
        env(variable)
      }, one task on each node: that may be a step of relays instead of ` +
        "ranks; say it yourself",
    );
  }
  return { counts, variable };
}

/** The run of ranks of this node of a Slurm step. */
function slurmBlock(env: ReadEnvironment): Block | undefined {
  const node = numberIn(env, "SLURM_NODEID", " (slurm)");
  const nodes = slurmNodes(env);
  if (node === undefined || nodes === undefined) return undefined;
  const { counts, variable } = nodes;
  const distribution = env("SLURM_DISTRIBUTION") ?? "block";
  const count = counts[node.value];
  if (count === undefined) {
    throw new LaunchError(`${variable} has no node ${node.value}, which ${node.by} says this is`);
  }
  if (counts.length > 1 && !distribution.startsWith("block")) {
    throw new LaunchError(
      `SLURM_DISTRIBUTION is ${distribution}: only with block do the ranks of a host follow each ` +
        "other; name them",
    );
  }
  const first = counts.slice(0, node.value).reduce((sum, tasks) => sum + tasks, 0);
  return { first, count, from: `${variable} and ${node.by}` };
}

/** Most nodes that a list of tasks may speak of. */
const MAX_NODES = 65_536;

/** Slurm's list of tasks per node: `2(x3),1` is 2, 2, 2, 1. */
function tasksPerNode(text: string, variable: string): number[] {
  const counts: number[] = [];
  for (const item of text.split(",")) {
    const parts = /^(\d{1,6})(?:\(x(\d{1,5})\))?$/.exec(item.trim());
    const times = Number(parts?.[2] ?? 1);
    if (parts === null || counts.length + times > MAX_NODES) {
      throw new LaunchError(
        `${variable}: expected tasks per node like 2(x3),1, got ${
          JSON.stringify(text.slice(0, 80))
        }`,
      );
    }
    for (let i = 0; i < times; i++) counts.push(Number(parts[1]));
  }
  return counts;
}
