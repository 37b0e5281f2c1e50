// Runs many seeds in processes of their own, one a core.
import { TextLineStream } from "@std/streams";
import type { Verdict } from "./simulate.ts";

/** A seed that takes longer than this hangs, in milliseconds of real time. */
const HANG_MS = 120_000;

/** What is to be run. */
export interface ManyOptions {
  /** The first seed. */
  readonly from: number;
  readonly seeds: number;
  /** How many processes. */
  readonly jobs: number;
  /** Where worker.ts lies, for a copy of the product. */
  readonly root?: URL;
  /** Stop after so many milliseconds of real time. */
  readonly forMs?: number;
  /** Stop at the first violation. */
  readonly first?: boolean;
  /** Told of every seed. */
  readonly onVerdict?: (verdict: SeedVerdict) => void;
}

/** What became of a seed. */
export type SeedVerdict = Omit<Verdict, "trace">;

/** What became of all. */
export interface ManyResult {
  readonly seeds: number;
  readonly results: number;
  readonly faults: number;
  /** Virtual time of all seeds together, in milliseconds. */
  readonly virtualMs: number;
  readonly ms: number;
  readonly violations: readonly SeedVerdict[];
}

/** Runs them, as many as fit. */
export async function simulateMany(options: ManyOptions): Promise<ManyResult> {
  const { from, seeds, forMs, first, onVerdict } = options;
  const jobs = Math.max(1, Math.min(options.jobs, seeds));
  const root = options.root ?? new URL("../../", import.meta.url);
  const started = performance.now();
  const total = { seeds: 0, results: 0, faults: 0, virtualMs: 0 };
  const violations: SeedVerdict[] = [];
  const stop = new AbortController();
  const timer = forMs === undefined ? undefined : setTimeout(() => stop.abort(), forMs);
  const take = (verdict: SeedVerdict) => {
    total.seeds++;
    total.results += verdict.results;
    total.faults += verdict.faults;
    total.virtualMs += verdict.ms;
    onVerdict?.(verdict);
    if (verdict.violations.length === 0) return;
    violations.push(verdict);
    if (first) stop.abort();
  };
  try {
    await Promise.all(Array.from({ length: jobs }, (_, job) => {
      const count = Math.ceil((seeds - job) / jobs);
      return work(root, from + job, jobs, count, stop, take);
    }));
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
  violations.sort((a, b) => a.seed - b.seed);
  return { ...total, ms: performance.now() - started, violations };
}

async function work(
  root: URL,
  first: number,
  step: number,
  count: number,
  stop: AbortController,
  take: (verdict: SeedVerdict) => void,
): Promise<void> {
  let next = first;
  while (count > 0 && !stop.signal.aborted) {
    const child = new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "--allow-all",
        "--quiet",
        new URL("tests/simulation/worker.ts", root).href,
        `${next}`,
        `${step}`,
        `${count}`,
      ],
      cwd: root,
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      signal: stop.signal,
    }).spawn();
    const complaints = new Response(child.stderr).text();
    let alive = true;
    const end = () => {
      if (alive) child.kill("SIGKILL");
    };
    let watch = setTimeout(end, HANG_MS);
    const lines = child.stdout.pipeThrough(new TextDecoderStream())
      .pipeThrough(new TextLineStream());
    for await (const line of lines as ReadableStream<string>) {
      clearTimeout(watch);
      watch = setTimeout(end, HANG_MS);
      // A line that was cut off by the end of the process says nothing.
      if (!line.endsWith("}")) break;
      take(JSON.parse(line));
      next += step;
      count--;
    }
    const { success } = await child.status;
    alive = false;
    clearTimeout(watch);
    const said = await complaints;
    if (stop.signal.aborted) return;
    if (success && count === 0) return;
    take({
      seed: next,
      violations: [`the process of this seed ended, or was silent for ${HANG_MS} ms: ${said}`],
      hash: "",
      results: 0,
      ms: 0,
      faults: 0,
    });
    next += step;
    count--;
  }
}
