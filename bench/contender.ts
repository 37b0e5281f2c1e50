/**
 * What the bench measures: Tierfold and its peers behind one interface, so that their runs can be
 * interleaved.
 *
 * @module
 */

import type { Child } from "./child.ts";
import type { ContenderName, RoleFigures } from "./figures.ts";
import { mean } from "./figures.ts";
import { memory, totalCpuSeconds } from "./proc.ts";
import type { WorkerResult } from "./worker_lines.ts";

/** How much of one size is measured in one run. */
export interface RoundPlan {
  /** f32 bytes per rank. */
  bytes: number;
  /** Rounds before the measured ones. */
  warm: number;
  /** Measured rounds. */
  rounds: number;
}

/** What one run of one size gave. */
export interface Sample {
  /** Every measured round of every rank, in milliseconds. */
  ms: number[];
  /** CPU and memory by role. */
  roles: Record<string, RoleFigures>;
}

/** A contender's processes for a number of ranks. */
export interface Session {
  /** Makes the rounds. */
  run(plan: RoundPlan, observer?: Observer): Promise<Sample>;
  /** Ends the processes. */
  close(): Promise<void>;
}

/** Tierfold or one of its peers. */
export interface Contender {
  /** Its name in the figures. */
  readonly name: ContenderName;
  /** Why it cannot be measured here, or nothing when it can. */
  unavailable(): Promise<string | undefined>;
  /** The memory that all its processes together need, in bytes. */
  memoryBytes(ranks: number, bytes: number): number;
  /** Starts its processes, or prepares to. */
  open(ranks: number): Promise<Session>;
}

/** A child and what it is. */
export interface Member {
  /** The process. */
  child: Child;
  /** rank, relay, controller or server. */
  role: string;
}

/** Told when the measured rounds begin and when they have ended. */
export interface Observer {
  /** Before the round that takes up the skew of the start, and the measured rounds. */
  begin(): void;
  /** After them. */
  end(): void;
}

/** The slowest rate that is not taken for a hang, in bytes of a model per second. */
const PATIENCE_BYTES_S = 2e6;

/** How long rounds may take before they count as hung, in milliseconds. */
export function patienceMs(plan: RoundPlan): number {
  return 30_000 + (plan.warm + plan.rounds + 1) * (50 + plan.bytes / PATIENCE_BYTES_S * 1e3);
}

/**
 * Drives rank processes, which speak worker_lines.ts, through one plan, and samples the processes
 * that serve them.
 *
 * @throws {Error} When a process ends or hangs.
 */
export async function driveMembers(
  ranks: readonly Member[],
  servers: readonly Member[],
  plan: RoundPlan,
  observer?: Observer,
): Promise<Sample> {
  const patience = patienceMs(plan);
  const send = (line: string) => Promise.all(ranks.map(({ child }) => child.send(line)));
  await send(`go ${plan.bytes} ${plan.warm} ${plan.rounds}`);
  await Promise.all(ranks.map(({ child }) => child.expect("warm", patience)));
  const before = servers.map(({ child }) => totalCpuSeconds(child.pid));
  observer?.begin();
  await send("measure");
  const results = await Promise.all(ranks.map(async ({ child }): Promise<WorkerResult> => {
    return JSON.parse(await child.expect("result ", patience));
  }));
  observer?.end();

  const found = results.map((result, index) => ({
    role: ranks[index]?.role ?? "rank",
    cpu_s: result.cpu_s,
    rss_mb: result.rss_mb,
  }));
  servers.forEach(({ child, role }, index) => {
    // The servers also worked for the round that took up the skew of the start.
    const cpu_s = (totalCpuSeconds(child.pid) - (before[index] ?? 0)) / (plan.rounds + 1);
    found.push({ role, cpu_s, rss_mb: memory(child.pid).peak_mb });
  });
  return { ms: results.flatMap((result) => result.ms), roles: byRole(found) };
}

/** Joins the figures of processes of the same role. */
export function byRole(
  processes: readonly { role: string; cpu_s: number; rss_mb: number }[],
): Record<string, RoleFigures> {
  const roles: Record<string, RoleFigures> = {};
  for (const role of new Set(processes.map((process) => process.role))) {
    const members = processes.filter((process) => process.role === role);
    roles[role] = {
      processes: members.length,
      cpu_s: mean(members.map((member) => member.cpu_s)),
      rss_mb: Math.max(...members.map((member) => member.rss_mb)),
    };
  }
  return roles;
}
