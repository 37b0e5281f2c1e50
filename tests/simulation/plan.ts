// What one seed means: the cluster, the network, what the ranks do, and what goes wrong when.
import type { Weather } from "./network.ts";
import { Random } from "./random.ts";

/** What all ranks do in one round. */
export type Operation =
  | { readonly kind: "model" | "control" | "counts" }
  | { readonly kind: "broadcast"; readonly root: number };

/** Which process: the controller, the relay of a host, a rank. */
export type Target =
  | { readonly role: "controller" }
  | { readonly role: "relay"; readonly index: number }
  | { readonly role: "rank"; readonly index: number };

/** Something that goes wrong at a time, in milliseconds. */
export type Fault =
  & { readonly at: number }
  & (
    /** A process dies and is started again after `ms`. */
    | { readonly kind: "kill"; readonly target: Target; readonly ms: number }
    /** A process lives but is not heard and does not hear for `ms`. */
    | { readonly kind: "freeze"; readonly target: Target; readonly ms: number }
    /** A connection of the process breaks, after so many bytes more. */
    | { readonly kind: "cut"; readonly target: Target; readonly bytes: number }
    /** One of the next bytes on a connection of the process is changed. */
    | {
      readonly kind: "spoil";
      readonly target: Target;
      readonly end: 0 | 1;
      readonly within: number;
    }
    /** A connection of the process falls silent in one direction, or both (2), until faults stop. */
    | { readonly kind: "silence"; readonly target: Target; readonly end: 0 | 1 | 2 }
    /** A rank closes, in the middle of a round if there is one, and comes back after `ms`. */
    | { readonly kind: "leave"; readonly rank: number; readonly now: boolean; readonly ms: number }
    /** A rank does nothing for `ms` before its next round. */
    | { readonly kind: "dawdle"; readonly rank: number; readonly ms: number }
    /** A rank's next frame holds a NaN, or is of another shape. */
    | { readonly kind: "nan" | "odd"; readonly rank: number }
    /** Somebody connects, says so many random bytes, and stays for `ms`. */
    | {
      readonly kind: "stranger";
      readonly target: Target;
      readonly bytes: number;
      readonly ms: number;
    }
    /** A second process claims the place of a rank. */
    | { readonly kind: "double"; readonly rank: number; readonly wrongSalt: boolean }
  );

/** One run. */
export interface Plan {
  readonly seed: number;
  /** The ranks of each host. */
  readonly hosts: readonly (readonly number[])[];
  readonly worldSize: number;
  readonly weather: Weather;
  /** Values of a tensor. */
  readonly size: number;
  /** What is done in round i, counted from 0 and again from the start after the last one. */
  readonly operations: readonly Operation[];
  /** The longest time between two rounds of a rank, in milliseconds. */
  readonly thinkMs: number;
  /** How each rank sends and takes Model frames. */
  readonly wires: readonly ("f32" | "bf16")[];
  /** How often a rank's mass is 0. */
  readonly idle: number;
  readonly roundDeadlineMs: number;
  /** The least that the controller's deadline adapts to; undefined: it is fixed. */
  readonly deadlineFloorMs: number | undefined;
  readonly joinDeadlineMs: number;
  /** How long a relay tries to get back to a lost controller. */
  readonly reconnectDeadlineMs: number;
  /** How long the controller waits for relays that were lost. */
  readonly returnDeadlineMs: number;
  readonly roundTimeoutMs: number;
  /** When each process starts, in milliseconds. */
  readonly starts: {
    readonly controller: number;
    readonly relays: readonly number[];
    readonly ranks: readonly number[];
  };
  readonly faults: readonly Fault[];
  /** When faults stop, in milliseconds. */
  readonly calmAt: number;
}

function makeHosts(random: Random): number[][] {
  const size = random.int(1, 6);
  const count = random.int(1, Math.min(size, 3));
  const hosts: number[][] = Array.from({ length: count }, () => []);
  random.shuffled(Array.from({ length: size }, (_, rank) => rank))
    .forEach((rank, i) => hosts[i < count ? i : random.int(0, count - 1)]!.push(rank));
  return hosts.map((ranks) => ranks.sort((a, b) => a - b));
}

function makeWeather(random: Random): Weather {
  const mostBytes = random.pick([undefined, undefined, undefined, 1_024, 64, 33]);
  // Bytes never overtake each other: in many pieces, each late, a frame would outlast every deadline.
  const pieces = mostBytes !== undefined && mostBytes < 100;
  return {
    delayMs: random.pick([0, 0, 1, 5, 5, 40]),
    spikes: random.pick(pieces ? [0, 0, 0.005] : [0, 0, 0.01, 0.05]),
    spikeMs: random.pick(pieces ? [100, 400] : [100, 400, 1_500]),
    mostBytes,
    budget: random.pick([65_536, 65_536, 4_096, 256]),
    resets: random.chance(0.5),
  };
}

/** The ranks of one host send in the same form: frames of both do not fit together. */
function makeWires(random: Random, hosts: readonly (readonly number[])[]): ("f32" | "bf16")[] {
  const share = random.pick([0, 0, 0.5, 1]);
  const wires: ("f32" | "bf16")[] = [];
  for (const ranks of hosts) {
    const wire = random.chance(share) ? "bf16" : "f32";
    for (const rank of ranks) wires[rank] = wire;
  }
  return wires;
}

function makeOperations(random: Random, worldSize: number): Operation[] {
  const one = (): Operation =>
    random.pick<() => Operation>([
      () => ({ kind: "model" }),
      () => ({ kind: "model" }),
      () => ({ kind: "control" }),
      () => ({ kind: "counts" }),
      () => ({ kind: "broadcast", root: random.int(0, worldSize - 1) }),
    ])();
  if (random.chance(0.5)) return [{ kind: "model" }];
  return Array.from({ length: random.int(2, 6) }, one);
}

function makeFault(random: Random, hosts: readonly (readonly number[])[], end: number): Fault {
  const worldSize = hosts.flat().length;
  const at = random.int(0, end);
  const rank = random.int(0, worldSize - 1);
  const target: Target = random.pick<Target>([
    { role: "controller" },
    { role: "relay", index: random.int(0, hosts.length - 1) },
    { role: "relay", index: random.int(0, hosts.length - 1) },
    { role: "rank", index: rank },
    { role: "rank", index: rank },
  ]);
  const ms = random.pick([0, 10, 50, 200, 900, 2_500]);
  return random.pick<() => Fault>([
    () => ({ at, kind: "kill", target, ms }),
    () => ({ at, kind: "kill", target, ms }),
    () => ({ at, kind: "freeze", target, ms }),
    () => ({ at, kind: "cut", target, bytes: random.pick([0, 1, 30, 100, 300]) }),
    () => ({ at, kind: "cut", target, bytes: random.int(1, 1_000) }),
    () => ({
      at,
      kind: "spoil",
      target,
      end: random.pick([0, 1]),
      within: random.int(1, 300),
    }),
    () => ({ at, kind: "silence", target, end: random.pick([0, 1, 2]) }),
    () => ({
      at,
      kind: "silence",
      target: { role: "rank", index: rank },
      end: random.pick([0, 1, 2]),
    }),
    () => ({ at, kind: "leave", rank, now: random.chance(0.5), ms }),
    () => ({ at, kind: "leave", rank, now: random.chance(0.5), ms }),
    () => ({ at, kind: "dawdle", rank, ms }),
    () => ({ at, kind: random.pick(["nan", "odd"]), rank }),
    () => ({ at, kind: "stranger", target, bytes: random.int(0, 200), ms }),
    () => ({ at, kind: "double", rank, wrongSalt: random.chance(0.5) }),
  ])();
}

/** Makes the plan of a seed. */
export function makePlan(seed: number): Plan {
  const random = new Random(seed, 0x706c);
  const hosts = makeHosts(random);
  const worldSize = hosts.flat().length;
  const calmAt = random.pick([300, 1_000, 1_000, 2_500]);
  const start = () => random.chance(0.2) ? random.int(0, calmAt) : random.int(0, 20);
  const roundDeadlineMs = random.pick([600, 1_500]);
  const weather = makeWeather(random);
  // Bytes in small pieces, or often late, take long to carry: large frames are for other networks.
  const large = weather.mostBytes === undefined && weather.budget === 65_536 &&
    random.chance(0.01) &&
    weather.spikes === 0;
  return {
    seed,
    hosts,
    worldSize,
    weather,
    size: large ? random.pick([70_000, 300_000]) : random.pick([1, 2, 7, 40]),
    operations: makeOperations(random, worldSize),
    thinkMs: random.pick([30, 100, 300]),
    wires: makeWires(random, hosts),
    idle: random.pick([0, 0, 0.2, 0.6]),
    roundDeadlineMs,
    deadlineFloorMs: random.pick([undefined, undefined, 400]),
    joinDeadlineMs: random.pick([400, 3_000]),
    reconnectDeadlineMs: random.pick([0, 1_000, 10_000]),
    returnDeadlineMs: random.pick([0, 1_000, 10_000]),
    roundTimeoutMs: random.pick([2_500, 60_000, 60_000]),
    starts: {
      controller: start(),
      relays: hosts.map(start),
      ranks: Array.from({ length: worldSize }, start),
    },
    faults: Array.from(
      { length: random.pick([0, 1, 2, 3, 5, 8]) },
      () => makeFault(random, hosts, calmAt),
    ).sort((a, b) => a.at - b.at),
    calmAt,
  };
}
