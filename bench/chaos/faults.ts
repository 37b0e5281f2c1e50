/**
 * What a chaos run does to its cluster.
 *
 * @module
 */
import { type ChaosCluster, ROUND_DEADLINE_MS } from "./cluster.ts";
import type { Dice } from "./dice.ts";
import type { SmallDisk } from "./disk.ts";
import { garbage } from "./garbage.ts";
import { WORLD } from "./values.ts";

/** Kinds of faults. */
export const FAULT_KINDS = [
  "rank killed",
  "rank stopped",
  "relay killed",
  "rank cut off",
  "relay cut off",
  "garbage connections",
  "disk full",
  "controller killed",
  "controller ended",
] as const;

/** One kind. */
export type FaultKind = typeof FAULT_KINDS[number];

/** Relays of the cluster. */
const RELAYS = 2;
/** How much longer than the round deadline a rank is stopped, in milliseconds. */
const STOPPED_MS = { least: ROUND_DEADLINE_MS + 500, more: 1_500 };
/** How long the disk is full. */
const FULL_MS = { least: 1_000, more: 1_500 };
/** Strangers by each door. */
const STRANGERS = 12;

/** What faults need. */
export interface Ground {
  readonly cluster: ChaosCluster;
  readonly disk: SmallDisk;
  readonly dice: Dice;
  /** Told how many strangers have called. */
  readonly called: (strangers: number) => void;
}

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

/** Draws what a fault needs to know, and says how to do it; all draws are made before anything is done. */
export function prepare(kind: FaultKind, ground: Ground): () => Promise<void> {
  const { cluster, disk, dice, called } = ground;
  const rank = dice.upTo(WORLD);
  const relay = dice.upTo(RELAYS);
  const within = ({ least, more }: { least: number; more: number }) => least + dice.upTo(more);
  const signal = (role: "controller" | "relay" | "rank", i: number, which: Deno.Signal) => {
    return () => Promise.resolve(cluster.signal(role, i, which));
  };
  switch (kind) {
    case "rank killed":
      return signal("rank", rank, "SIGKILL");
    case "relay killed":
      return signal("relay", relay, "SIGKILL");
    case "controller killed":
      return signal("controller", 0, "SIGKILL");
    case "controller ended":
      return signal("controller", 0, "SIGTERM");
    case "rank cut off":
      return () => Promise.resolve(cluster.cut("rank", rank));
    case "relay cut off":
      return () => Promise.resolve(cluster.cut("relay", relay));
    case "rank stopped": {
      const ms = within(STOPPED_MS);
      return async () => {
        cluster.signal("rank", rank, "SIGSTOP");
        await pause(ms);
        cluster.signal("rank", rank, "SIGCONT");
      };
    }
    case "disk full": {
      const ms = within(FULL_MS);
      return async () => {
        await disk.fill();
        await pause(ms);
        await disk.empty();
      };
    }
    case "garbage connections":
      return async () => called(await garbage(cluster.doors, STRANGERS, dice));
  }
}
