/**
 * The figures of `deno task bench:profile`: where the CPU of a large round goes.
 *
 * @module
 */

import type { Machine } from "./figures.ts";
import type { PerfSample } from "./perf.ts";
import { pageOf } from "./perf.ts";
import { formatMs } from "./sizes.ts";
import type { Table } from "./table.ts";

/** What CPU time was spent on. */
export const WORK = [
  "HMAC-SHA256",
  "kernel: copies of socket bytes",
  "kernel: page faults and clearing",
  "kernel: TCP, scheduling, system calls",
  "WASM: fold, scale, checks",
  "user copies (memmove, memset)",
  "JavaScript",
  "Deno's runtime, V8, others",
] as const;

/** One of {@link WORK}. */
export type Work = typeof WORK[number];

/** CPU of one process per round. */
export interface ProcessCpu {
  /** rank, relay or controller. */
  role: string;
  /** Milliseconds in user code. */
  user_ms: number;
  /** Milliseconds in the kernel. */
  system_ms: number;
}

/** CPU of the threads of a name in the processes of a role, per round, for one process. */
export interface ThreadCpu extends ProcessCpu {
  /** The threads' name. */
  thread: string;
  /** How many threads of this name used any CPU, per process. */
  threads: number;
}

/** The longest stall of the event loop of one role. */
export interface LoopStalls {
  /** relay or controller. */
  role: string;
  /** The longest stall in milliseconds. */
  longest_ms: number;
  /** How many were longer than 50 ms. */
  over_50_ms: number;
  /** Rounds watched. */
  rounds: number;
}

/** A function or address and its part of all samples. */
export interface HotSpot {
  /** rank, relay or controller. */
  role: string;
  /** What it does. */
  work: Work;
  /** Library and name. */
  where: string;
  /** Its part of all samples, 0 to 1. */
  part: number;
}

/** Everything that `deno task bench:profile` found out. */
export interface ProfileFigures {
  /** When it ended, ISO 8601, UTC. */
  date: string;
  /** Where. */
  machine: Machine;
  /** Ranks, all on one host. */
  ranks: number;
  /** f32 bytes per rank. */
  bytes: number;
  /** Measured rounds. */
  rounds: number;
  /** Median round in milliseconds, while profiled. */
  median_ms: number;
  /** By role, the mean over its processes. */
  processes: ProcessCpu[];
  /** By role and thread name. */
  threads: ThreadCpu[];
  /** Milliseconds per round of all processes together, by role and work; absent without perf. */
  work?: Record<string, Partial<Record<Work, number>>>;
  /** The busiest places; absent without perf. */
  hot?: HotSpot[];
  /** Stalls of event loops; absent where a process did not report. */
  stalls: LoopStalls[];
  /** Why there is no work list, where there is none. */
  no_perf?: string;
}

/** Kernel functions that move socket bytes between user memory and packets. */
const COPY =
  /^(rep_movs|copy_user|_?_?copy_(from|to)_|copyin|copyout|memcpy|simple_copy|csum_and_)/;

/** Kernel functions that give out memory. */
const FAULT =
  /fault|clear_page|clear_huge|anonymous|alloc_pages|folio|charge_|memcg|mem_cgroup|vma|pte|pmd|lru_|zap_|unmap|free_pages|free_unref/;

/** What a sample's time was spent on. */
export function workOf({ object, symbol }: PerfSample, hash: ReadonlySet<number>): Work {
  if (object === "[kernel.kallsyms]" || object.startsWith("[kernel")) {
    if (COPY.test(symbol)) return "kernel: copies of socket bytes";
    if (FAULT.test(symbol)) return "kernel: page faults and clearing";
    return "kernel: TCP, scheduling, system calls";
  }
  if (object === "[JIT]" || object.startsWith("perf-")) {
    return /wasm|^Function:/i.test(symbol) ? "WASM: fold, scale, checks" : "JavaScript";
  }
  if (/mem(move|set|cpy)/.test(symbol)) return "user copies (memmove, memset)";
  const page = pageOf(symbol);
  if (page !== undefined && hash.has(page) && !object.includes(".so")) return "HMAC-SHA256";
  return "Deno's runtime, V8, others";
}

/** CPU by work, a column per role, in milliseconds per round of all the role's processes. */
export function workTable(work: Record<string, Partial<Record<Work, number>>>): Table {
  const roles = Object.keys(work);
  const of = (role: string, kind: Work) => work[role]?.[kind] ?? 0;
  const sum = (kinds: readonly Work[], over: readonly string[]) =>
    over.reduce((all, role) => all + kinds.reduce((part, kind) => part + of(role, kind), 0), 0);
  const total = sum(WORK, roles);
  const line = (name: string, kinds: readonly Work[]) => [
    name,
    ...roles.map((role) => formatMs(sum(kinds, [role]))),
    formatMs(sum(kinds, roles)),
    `${(100 * sum(kinds, roles) / total).toFixed(1)} %`,
  ];
  const sorted = WORK.toSorted((a, b) => sum([b], roles) - sum([a], roles));
  return {
    header: ["CPU per round", ...roles.map((role) => `${role} (all)`), "together", "part"],
    rows: [...sorted.map((kind) => line(kind, [kind])), line("all", WORK)],
  };
}

/** CPU by role and thread name. */
export function threadTable(threads: readonly ThreadCpu[]): Table {
  return {
    header: ["role", "thread", "threads", "user", "system"],
    rows: threads.map((one) => [
      one.role,
      one.thread,
      String(one.threads),
      formatMs(one.user_ms),
      formatMs(one.system_ms),
    ]),
  };
}

/** The busiest places. */
export function hotTable(hot: readonly HotSpot[]): Table {
  return {
    header: ["role", "work", "where", "part"],
    rows: hot.map(({ role, work, where, part }) => [
      role,
      work,
      where,
      `${(100 * part).toFixed(1)} %`,
    ]),
  };
}
