/**
 * A Tierfold cluster as real processes: one controller, one relay per host, and rank processes, all
 * started from the command lines that users have.
 *
 * @module
 */

import { invariant } from "../wire/errors.ts";
import { Child } from "./child.ts";
import type { Member, Observer, RoundPlan, Sample } from "./contender.ts";
import { driveMembers } from "./contender.ts";

/** How long a process may take to accept connections, in milliseconds. */
const START_MS = 60_000;

/** One host of the cluster. */
export interface HostPlan {
  /** How many ranks it has. */
  ranks: number;
  /** Put before every command of this host, such as `ip netns exec NAME`. */
  prefix?: readonly string[];
}

/** What cluster to start. */
export interface ClusterPlan {
  /** The hosts, in rank order. */
  hosts: readonly HostPlan[];
  /** Put before the controller's command. */
  controllerPrefix?: readonly string[];
  /** Where the controller listens; loopback with a free port by default. */
  controllerListen?: string;
  /** What travels on the wire; f32 by default. */
  wire?: "f32" | "bf16";
  /**
   * How many ranks share one process; 1 by default. With more than a host has, ranks of several hosts
   * share one, which takes hosts without a prefix.
   */
  ranksPerProcess?: number;
  /** Options for `deno run` of relays and controller, such as `--preload=FILE`. */
  serverFlags?: readonly string[];
  /** Working directory of every process; ours by default. */
  cwd?: string;
  /** Environment of every process on top of ours. */
  env?: Record<string, string>;
  /** Options for `deno run` of the rank processes. */
  rankFlags?: readonly string[];
}

/** A running cluster. */
export interface Cluster {
  /** The rank processes. */
  readonly ranks: readonly Member[];
  /** The relays in host order, then the controller. */
  readonly servers: readonly Member[];
  /** Makes rounds; see {@link driveMembers}. */
  run(plan: RoundPlan, observer?: Observer): Promise<Sample>;
  /**
   * Lets every rank close cleanly and waits for relays and controller to end by themselves.
   *
   * @returns The exit codes of relays and controller, which are 0 after a clean end.
   */
  close(): Promise<number[]>;
  /** Kills every process. */
  kill(): Promise<void>;
}

/**
 * Starts a cluster and waits until every rank is connected.
 *
 * @throws {Error} When a process ends or is not ready within a minute; all others are killed first.
 */
export async function startCluster(plan: ClusterPlan): Promise<Cluster> {
  const servers: Member[] = [];
  const ranks: Member[] = [];
  const kill = async (): Promise<void> => {
    const members = [...ranks, ...servers];
    for (const { child } of members) child.kill("SIGKILL");
    await Promise.all(members.map(({ child }) => child.finish()));
  };
  try {
    await start(plan, servers, ranks);
  } catch (error) {
    await kill();
    throw error;
  }
  return {
    ranks,
    servers,
    run: (rounds, observer) => driveMembers(ranks, servers, rounds, observer),
    kill,
    async close() {
      await Promise.all(ranks.map(({ child }) => child.send("quit")));
      await Promise.all(ranks.map(({ child }) => child.finish()));
      return await Promise.all(servers.map(({ child }) => child.finish(10_000)));
    },
  };
}

async function start(plan: ClusterPlan, servers: Member[], ranks: Member[]): Promise<void> {
  const { hosts, wire = "f32", ranksPerProcess = 1, serverFlags = [], rankFlags = [] } = plan;
  const worldSize = hosts.reduce((sum, host) => sum + host.ranks, 0);
  const env = { ...plan.env, TIERFOLD_SALT: newSalt() };
  const cwd = plan.cwd === undefined ? {} : { cwd: plan.cwd };
  const script = (path: string): string => new URL(path, import.meta.url).pathname;
  const launch = (
    role: string,
    name: string,
    prefix: readonly string[] = [],
    flags: readonly string[],
    args: readonly string[],
  ): Child => {
    const command = [
      ...prefix,
      Deno.execPath(),
      "run",
      "--quiet",
      "--allow-all",
      ...flags,
      ...args,
    ];
    const child = new Child({ name, command, env, ...cwd });
    (role === "rank" ? ranks : servers).push({ child, role });
    return child;
  };

  const controller = launch("controller", "controller", plan.controllerPrefix, serverFlags, [
    script("../controller.ts"),
    ...["--listen", plan.controllerListen ?? "127.0.0.1:0", "--world-size", String(worldSize)],
    // Namespaces are a network of our own.
    ...(plan.controllerListen === undefined ? [] : ["--allow-plain"]),
  ]);
  const controllerAddress = await controller.expect("listening ", START_MS);

  let next = 0;
  const relays = hosts.map((host, index) => {
    const first = next;
    next += host.ranks;
    const child = launch("relay", `relay ${index}`, host.prefix, serverFlags, [
      script("../relay.ts"),
      ...["--host", `host-${index}`, "--ranks", `${first}-${next - 1}`],
      ...["--world-size", String(worldSize), "--controller", controllerAddress],
      ...["--listen", "127.0.0.1:0"],
    ]);
    return { child, host, first };
  });
  const places = (await Promise.all(relays.map(async ({ child, host, first }) => {
    const address = await child.expect("listening ", START_MS);
    return Array.from({ length: host.ranks }, (_, at) => ({
      prefix: host.prefix,
      place: `${first + at}@${address}`,
    }));
  }))).flat();
  const workers: Child[] = [];
  for (let at = 0; at < places.length; at += ranksPerProcess) {
    const group = places.slice(at, at + ranksPerProcess);
    invariant(group.every(({ prefix }) => prefix === group[0]?.prefix), "one process, one host");
    workers.push(launch("rank", `rank ${at}`, group[0]?.prefix, rankFlags, [
      script("./rank_worker.ts"),
      ...[String(worldSize), wire, ...group.map(({ place }) => place)],
    ]));
  }
  await Promise.all(workers.map((worker) => worker.expect("ready", START_MS)));
}

/** A fresh session salt: 16 bytes as 32 hex digits. */
function newSalt(): string {
  return crypto.getRandomValues(new Uint8Array(16)).toHex();
}
