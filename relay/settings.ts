/**
 * What a relay is told, and what it says in the end.
 *
 * @module
 */
import type { NonFinitePolicy } from "../fold/nonfinite.ts";
import type { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import type { Terms } from "../serve/terms.ts";
import type { Network } from "../transport/network.ts";
import type { Address } from "../transport/tcp.ts";
import type { Manifest } from "../wire/manifest.ts";

/** What a relay must know. */
export interface RelaySettings {
  /** This host's name. */
  host: string;
  /** The ranks of this host, ascending. */
  ranks: readonly number[];
  worldSize: number;
  listen: Address;
  controller: Address;
  salt: Uint8Array;
  frameCeilingBytes: number;
  /** Threads that hash large frames. */
  workers: number | "auto";
  connectDeadlineMs: number;
  /** How long to try to reach a controller that was lost; 0, or left out: not at all. */
  reconnectDeadlineMs?: number;
  joinDeadlineMs: number;
  /** How long to wait for a rank to come back when the last one has died; not at all when left out. */
  returnDeadlineMs?: number;
  /** How long a round waits after its first frame; the most of it where it adapts. */
  roundDeadlineMs: number;
  /** The least that the round deadline adapts to; undefined: it is fixed. */
  deadlineFloorMs?: number | undefined;
  /** Where to serve HTTP for those who watch; nowhere unless given. */
  http?: Address | undefined;
  /** Told where HTTP is served, with the real port. */
  onHttp?: ((address: Address) => void) | undefined;
  /** What becomes of NaN and infinities in a rank's frame; "refuse" when left out. */
  nonfinite?: NonFinitePolicy;
  /** Names for the tensors, for messages. */
  manifest?: Manifest | undefined;
  /** What is asked of whoever connects; {@link TERMS} when left out. */
  terms?: Terms;
  /** Makes the kernel that sums. */
  kernel: (arena: Arena) => Promise<FoldKernel>;
  /** Where ranks come from; TCP when left out. */
  ranksNetwork?: Network;
  /** How the controller is reached; TCP when left out. */
  controllerNetwork?: Network | undefined;
  /** Told the address as soon as ranks can connect. */
  onListening: (address: Address) => void;
}

/** How a session ended. */
export interface RelayOutcome {
  rounds: number;
  /** Ranks that left of their own accord, between rounds. */
  left: number[];
  /** Ranks that died, were refused or never came. */
  lost: number[];
}

/** How long after its own round deadline a relay believes in the controller, in milliseconds. */
const CONTROLLER_GRACE_MS = 30_000;
/** A timer set for longer than this would fire at once, in milliseconds. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** How long a relay waits for a round's result, in milliseconds. */
export function controllerLimit({ roundDeadlineMs }: RelaySettings): number {
  return Math.min(2 * roundDeadlineMs + CONTROLLER_GRACE_MS, LONGEST_TIMER_MS);
}
