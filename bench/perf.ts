/**
 * Linux's sampling profiler, where it is installed: which code a process's CPU time went to.
 *
 * Samples follow the CPU clock, since virtual machines often have no counters. Deno's binary carries no
 * symbols, so its hashing code is found by profiling a process that does nothing but hash.
 *
 * @module
 */

import { Child, succeeds } from "./child.ts";
import { makeScratch, removeScratch } from "./scratch.ts";

/** Samples per second and core; a prime, so that it does not beat with anything periodic. */
const FREQUENCY = 997;

/** Bytes of code that count as one place when the hashing code is looked for. */
const PAGE = 4096;

/** Pages of the hashing process with less than this part of its samples are not its hashing code. */
const HASH_PART = 0.1;

/** Makes V8 name its compiled code for perf, in /tmp/perf-PID.map. */
export const PERF_FLAGS = "--v8-flags=--perf-basic-prof,--perf-basic-prof-only-functions";

/** How often one place in the code was met on one thread. */
export interface PerfSample {
  /** The thread. */
  tid: number;
  /** The thread's name. */
  thread: string;
  /** The binary or library, `[kernel.kallsyms]`, or `[JIT]`. */
  object: string;
  /** The function, or an address where it is not known. */
  symbol: string;
  /** How many samples. */
  count: number;
}

/** Why perf cannot be used here, or nothing. */
export async function perfUnavailable(): Promise<string | undefined> {
  const folder = makeScratch("perf");
  const works = await succeeds(
    ["perf", "record", "-q", "-e", "cpu-clock", "-o", `${folder}/try`, "true"],
  );
  removeScratch(folder);
  return works ? undefined : "perf is not installed or not allowed (Debian: linux-perf)";
}

/** Profiles processes from its start to {@link stop}. */
export class PerfRecording {
  readonly #folder = makeScratch("perf");
  readonly #child: Child;

  /** Starts recording all threads of the processes. */
  constructor(pids: readonly number[]) {
    const events = ["-e", "cpu-clock", "-F", String(FREQUENCY)];
    const command = ["perf", "record", "-q", ...events, "-o", this.#file, "-p", pids.join(",")];
    this.#child = new Child({ name: "perf record", command });
  }

  get #file(): string {
    return `${this.#folder}/data`;
  }

  /** Ends the recording. The processes must still live, so that their code can be named. */
  async stop(): Promise<PerfSample[]> {
    this.#child.kill("SIGINT");
    await this.#child.finish(30_000);
    const format = ["--sort", "pid,dso,sym", "-F", "sample,pid,dso,sym", "-t", "|"];
    const { stdout, success, stderr } = await new Deno.Command("perf", {
      args: ["report", "-i", this.#file, "--stdio", ...format],
    }).output();
    removeScratch(this.#folder);
    if (!success) throw new Error(`bench: perf report failed: ${new TextDecoder().decode(stderr)}`);
    return parseReport(new TextDecoder().decode(stdout));
  }
}

/** Reads lines such as `345|19704:deno|[kernel.kallsyms]|[k] name`. */
export function parseReport(text: string): PerfSample[] {
  return text.split("\n").flatMap((line) => {
    const [count = "", thread = "", object = "", ...symbol] = line.split("|").map((s) => s.trim());
    const match = /^(\d+):(.*)$/.exec(thread);
    if (match === null || !/^\d+$/.test(count)) return [];
    return [{
      tid: Number(match[1]),
      thread: match[2] as string,
      object: object.startsWith("[JIT]") ? "[JIT]" : object,
      symbol: symbol.join("|").replace(/^\[.\] /, ""),
      count: Number(count),
    }];
  });
}

/** The page of an address such as `0x0000000001ca2882`, or nothing for a name. */
export function pageOf(symbol: string): number | undefined {
  return /^0x[0-9a-f]+$/.test(symbol) ? Math.floor(Number(symbol) / PAGE) : undefined;
}

/** The pages of Deno's binary that hold its hashing code. */
export async function hashPages(): Promise<Set<number>> {
  const script = new URL("./hash_probe.ts", import.meta.url).pathname;
  const probe = new Child({
    name: "hash probe",
    command: [Deno.execPath(), "run", "--quiet", script, "0.4"],
  });
  const recording = new PerfRecording([probe.pid]);
  await probe.expect("gb_s ", 60_000);
  const samples = await recording.stop();
  await probe.finish();
  const pages = new Map<number, number>();
  let total = 0;
  for (const { symbol, count, object } of samples) {
    const page = object.startsWith("[") ? undefined : pageOf(symbol);
    total += count;
    if (page !== undefined) pages.set(page, (pages.get(page) ?? 0) + count);
  }
  return new Set([...pages].filter(([, count]) => count > HASH_PART * total).map(([page]) => page));
}
