/**
 * A whole cluster on this machine's loopback, every part a process of its own: one controller, one
 * relay per host, and one process per rank running a script of yours.
 *
 * @module
 */

import type { Process, ProcessGroup } from "./processes.ts";

/** What relays and controller may do: talk on loopback, read their options. */
const SERVER_PERMISSIONS = ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*"];

/** What a rank may do: talk to its relay, read the session salt. */
const RANK_PERMISSIONS = ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_SALT"];

/** One host of a cluster. */
export interface Host {
  readonly name: string;
  /** The ranks of this host, consecutive. */
  readonly ranks: readonly number[];
}

/** A host whose relay accepts ranks. */
export interface RunningHost extends Host {
  /** Its relay's address, `HOST:PORT`. */
  readonly relay: string;
}

/** A running controller and its relays, waiting for ranks. */
export interface Cluster {
  readonly hosts: readonly RunningHost[];
  readonly worldSize: number;
  /** The session salt as 32 hex digits. Fresh for every cluster; it goes into no command line. */
  readonly salt: string;
  /** The controller and the relays; they end by themselves once every rank has closed. */
  readonly servers: readonly Process[];
}

/** Deals `ranks` ranks to `hosts` hosts, in order and as evenly as it goes. */
export function layOutHosts(ranks: number, hosts: number): Host[] {
  let next = 0;
  return Array.from({ length: hosts }, (_, host) => {
    const count = Math.floor(ranks / hosts) + (host < ranks % hosts ? 1 : 0);
    const first = next;
    next += count;
    return { name: `host-${host}`, ranks: Array.from({ length: count }, (_, i) => first + i) };
  });
}

/**
 * Starts a controller and a relay per host, all on free ports, as members of `group`.
 *
 * @throws {ProcessError} when one ends, or does not listen in time; the group is still to be stopped.
 */
export async function startCluster(
  group: ProcessGroup,
  hosts: readonly Host[],
): Promise<Cluster> {
  const worldSize = hosts.reduce((sum, { ranks }) => sum + ranks.length, 0);
  const salt = crypto.getRandomValues(new Uint8Array(16)).toHex();
  const server = (name: string, script: string, args: readonly string[]) =>
    group.start({
      name,
      script: new URL(script, import.meta.url),
      permissions: SERVER_PERMISSIONS,
      args: ["--listen", "127.0.0.1:0", "--world-size", `${worldSize}`, ...args],
      env: { TIERFOLD_SALT: salt },
    });
  const root = server("the controller", "../controller.ts", []);
  const controller = await root.listening();
  const relays = hosts.map(({ name, ranks }) => {
    const args = ["--host", name, "--ranks", ranks.join(","), "--controller", controller];
    return server(`the relay of ${name}`, "../relay.ts", args);
  });
  const addresses = await Promise.all(relays.map((relay) => relay.listening()));
  return {
    hosts: hosts.map((host, index) => ({ ...host, relay: addresses[index]! })),
    worldSize,
    salt,
    servers: [root, ...relays],
  };
}

/** How to start a rank. */
export interface RankPlan {
  /** The rank's script. It gets `RELAY RANK WORLD_SIZE` as its first arguments, then `args`. */
  readonly script: URL;
  readonly args?: readonly string[];
  /**
   * What runs the script when it is no module of Deno's. It gets `args` alone, and finds its place in
   * TIERFOLD_RELAY, TIERFOLD_RANK and TIERFOLD_WORLD_SIZE.
   */
  readonly interpreter?: string;
  /** Called with every line that the rank prints. */
  readonly onLine?: (line: string) => void;
}

/** Starts one rank of a cluster as a member of `group`. */
export function startRank(
  group: ProcessGroup,
  { hosts, worldSize, salt }: Cluster,
  rank: number,
  { script, args = [], interpreter, onLine }: RankPlan,
): Process {
  const host = hosts.find(({ ranks }) => ranks.includes(rank));
  if (host === undefined) {
    throw new RangeError(`starting rank ${rank}: no host has it; world size ${worldSize}`);
  }
  const own = interpreter === undefined ? [host.relay, `${rank}`, `${worldSize}`] : [];
  return group.start({
    name: `rank ${rank}`,
    script,
    permissions: RANK_PERMISSIONS,
    args: [...own, ...args],
    env: {
      TIERFOLD_SALT: salt,
      TIERFOLD_RELAY: host.relay,
      TIERFOLD_RANK: `${rank}`,
      TIERFOLD_WORLD_SIZE: `${worldSize}`,
    },
    ...(interpreter === undefined ? {} : { interpreter }),
    ...(onLine === undefined ? {} : { onLine }),
  });
}
