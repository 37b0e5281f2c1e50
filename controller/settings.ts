/**
 * What a controller is told, and what it says in the end.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import type { Terms } from "../serve/terms.ts";
import type { Network } from "../transport/network.ts";
import type { Address } from "../transport/tcp.ts";
import type { SidelineOptions } from "./sidelines.ts";
import type { SessionState } from "./state/session_state.ts";

/** What a controller must know. */
export interface ControllerSettings {
  worldSize: number;
  listen: Address;
  salt: Uint8Array;
  frameCeilingBytes: number;
  /** Threads that hash large frames. */
  workers: number | "auto";
  joinDeadlineMs: number;
  /** How long a round waits after its first frame; the most of it where it adapts. */
  roundDeadlineMs: number;
  /** The least that the round deadline adapts to; undefined: it is fixed. */
  deadlineFloorMs?: number | undefined;
  /** How long relays that were lost may take to come back; 0, or left out: nobody waits for them. */
  returnDeadlineMs?: number;
  /** What is asked of whoever connects; {@link TERMS} when left out. */
  terms?: Terms;
  /** The fewest ranks with which a round closes; 1 when left out. */
  minRanks?: number;
  /** Makes the kernel that sums. */
  kernel: (arena: Arena) => Promise<FoldKernel>;
  /** Where relays come from; TCP when left out. */
  network?: Network | undefined;
  /** Told the address as soon as relays can connect. */
  onListening: (address: Address) => void;
  /** Federated passes and deltas; none unless given. */
  sidelines?: SidelineOptions;
  /** The operator's token, and how the session is ended for the operator; nobody's unless given. */
  operator?: { readonly token: string | undefined; end(): void };
  /** Opens what outlives a round; nothing does unless given. */
  state?: ((arena: Arena) => Promise<SessionState>) | undefined;
}

/** How a session ended. */
export interface ControllerOutcome {
  rounds: number;
  /** Ranks whose relays said that they left. */
  left: number[];
  /** Ranks that were lost with their relay, or never came. */
  lost: number[];
}
