/**
 * `deno task bench:profile`: where the CPU of a large round goes, by process, by thread and, where perf
 * is installed, by work; and how long the event loops of relay and controller stall meanwhile.
 *
 *     deno task bench:profile [--ranks 4] [--size 64MiB] [--rounds 15] [--json FILE] [--out DIR] [--docs]
 *
 * @module
 */

import { Command } from "commander";
import type { Cluster } from "./cluster.ts";
import { startCluster } from "./cluster.ts";
import type { RoundPlan } from "./contender.ts";
import { mean, median, significant } from "./figures.ts";
import { LAG_PREFIX, readStalls } from "./loop_lag.ts";
import { describeMachine, machineLine } from "./machine.ts";
import { endOnSignal, writeFigures } from "./output.ts";
import type { PerfSample } from "./perf.ts";
import { hashPages, PERF_FLAGS, PerfRecording, perfUnavailable } from "./perf.ts";
import type { CpuSeconds } from "./proc.ts";
import { cpuSeconds, threadCpuSeconds } from "./proc.ts";
import type {
  HotSpot,
  LoopStalls,
  ProcessCpu,
  ProfileFigures,
  ThreadCpu,
  Work,
} from "./profile_figures.ts";
import { hotTable, threadTable, workOf, workTable } from "./profile_figures.ts";
import { makeScratch, removeScratch } from "./scratch.ts";
import { formatMs, parseSize } from "./sizes.ts";
import { asText } from "./table.ts";

/** Places that the list of the busiest shows. */
const HOT_COUNT = 25;

/** CPU of every process and thread at one moment. */
class CpuShot {
  readonly processes: CpuSeconds[];
  readonly threads: Map<number, CpuSeconds & { name: string }>[];

  constructor(cluster: Cluster) {
    const members = [...cluster.ranks, ...cluster.servers];
    this.processes = members.map(({ child }) => cpuSeconds(child.pid));
    this.threads = members.map(({ child }) => threadCpuSeconds(child.pid));
  }
}

/** What is spent between two moments, in milliseconds per round. */
function spent(before: CpuSeconds | undefined, after: CpuSeconds, rounds: number): CpuSeconds {
  const per = (key: keyof CpuSeconds) => (after[key] - (before?.[key] ?? 0)) * 1e3 / rounds;
  return { user: per("user"), system: per("system") };
}

/** CPU by role, and by role and thread name, between two moments. */
function splitCpu(
  roles: readonly string[],
  before: CpuShot,
  after: CpuShot,
  rounds: number,
): { processes: ProcessCpu[]; threads: ThreadCpu[] } {
  const processes: ProcessCpu[] = [];
  const threads: ThreadCpu[] = [];
  for (const role of new Set(roles)) {
    const members = roles.flatMap((one, index) => one === role ? [index] : []);
    const cpu = members.map((index) =>
      spent(before.processes[index], after.processes[index] as CpuSeconds, rounds)
    );
    processes.push({
      role,
      user_ms: significant(mean(cpu.map(({ user }) => user))),
      system_ms: significant(mean(cpu.map(({ system }) => system))),
    });
    const byName = new Map<string, { user: number; system: number; threads: number }>();
    for (const index of members) {
      for (const [tid, thread] of after.threads[index] ?? []) {
        const { user, system } = spent(before.threads[index]?.get(tid), thread, rounds);
        const sum = byName.get(thread.name) ?? { user: 0, system: 0, threads: 0 };
        sum.user += user;
        sum.system += system;
        if (user + system > 0) sum.threads++;
        byName.set(thread.name, sum);
      }
    }
    for (const [thread, sum] of byName) {
      if (sum.user + sum.system === 0) continue;
      threads.push({
        role,
        thread,
        threads: significant(sum.threads / members.length),
        user_ms: significant(sum.user / members.length),
        system_ms: significant(sum.system / members.length),
      });
    }
  }
  return { processes, threads };
}

/** Turns samples into milliseconds per round by role and work, and the busiest places. */
function splitWork(
  samples: readonly PerfSample[],
  roleOf: ReadonlyMap<number, string>,
  hash: ReadonlySet<number>,
  cpuMs: ReadonlyMap<string, number>,
): { work: Record<string, Partial<Record<Work, number>>>; hot: HotSpot[] } {
  const counts = new Map<string, Map<Work, number>>();
  const places = new Map<string, HotSpot>();
  const all = samples.reduce((sum, { count }) => sum + count, 0);
  for (const sample of samples) {
    const role = roleOf.get(sample.tid);
    if (role === undefined) continue;
    const kind = workOf(sample, hash);
    const of = counts.get(role) ?? new Map<Work, number>();
    counts.set(role, of.set(kind, (of.get(kind) ?? 0) + sample.count));
    const where = kind === "HMAC-SHA256" ? "SHA-256 code" : `${sample.object} ${sample.symbol}`;
    const spot = places.get(`${role} ${where}`) ?? { role, work: kind, where, part: 0 };
    spot.part += sample.count / all;
    places.set(`${role} ${where}`, spot);
  }
  const work: Record<string, Partial<Record<Work, number>>> = {};
  for (const [role, of] of counts) {
    // Samples say how the time divides; /proc says how much there was.
    const scale = (cpuMs.get(role) ?? 0) / [...of.values()].reduce((sum, count) => sum + count, 0);
    work[role] = Object.fromEntries([...of].map(([kind, n]) => [kind, significant(n * scale)]));
  }
  const hot = [...places.values()].sort((a, b) => b.part - a.part).slice(0, HOT_COUNT);
  return { work, hot: hot.map((spot) => ({ ...spot, part: significant(spot.part, 3) })) };
}

/** Rounds whose event loops are watched from within, without perf. */
async function measureStalls(ranks: number, plan: RoundPlan): Promise<LoopStalls[]> {
  const preload = new URL("./loop_lag.ts", import.meta.url).pathname;
  const cluster = await startCluster({
    hosts: [{ ranks }],
    serverFlags: [`--preload=${preload}`],
    env: { TIERFOLD_BENCH_LOOP_LAG: "1" },
  });
  try {
    let begun = 0;
    let ended = 0;
    await cluster.run(plan, { begin: () => begun = Date.now(), end: () => ended = Date.now() });
    await cluster.close();
    return cluster.servers.flatMap(({ role, child }): LoopStalls[] => {
      const stalls = readStalls(child.stderr);
      if (stalls === undefined) {
        console.error(`${role}: no line "${LAG_PREFIX.trim()}" came; its stalls are not known`);
        return [];
      }
      const within = stalls.filter(([at]) => at >= begun && at <= ended).map(([, ms]) => ms);
      return [{
        role,
        longest_ms: Math.max(0, ...within),
        over_50_ms: within.filter((ms) => ms > 50).length,
        rounds: plan.rounds + 1,
      }];
    });
  } catch (error) {
    await cluster.kill();
    throw error;
  }
}

/** Profiles rounds of one size. */
export async function profile(ranks: number, plan: RoundPlan): Promise<ProfileFigures> {
  const noPerf = await perfUnavailable();
  const hash = noPerf === undefined ? await hashPages() : new Set<number>();
  const folder = makeScratch("profile");
  const flags = noPerf === undefined ? [PERF_FLAGS] : [];
  const cluster = await startCluster({
    hosts: [{ ranks }],
    serverFlags: flags,
    rankFlags: flags,
    // V8 writes its log files to the working directory.
    cwd: folder,
  });
  const members = [...cluster.ranks, ...cluster.servers];
  const roles = members.map(({ role }) => role);
  try {
    let recording: PerfRecording | undefined;
    let before: CpuShot | undefined;
    let after: CpuShot | undefined;
    const sample = await cluster.run(plan, {
      begin: () => {
        if (noPerf === undefined) recording = new PerfRecording(members.map((m) => m.child.pid));
        before = new CpuShot(cluster);
      },
      end: () => after = new CpuShot(cluster),
    });
    if (before === undefined || after === undefined) throw new Error("bench: no rounds were made");
    const samples = await recording?.stop();
    const split = splitCpu(roles, before, after, plan.rounds + 1);
    const roleOf = new Map(
      after.threads.flatMap((threads, index) =>
        [...threads.keys()].map((tid) => [tid, roles[index] ?? "rank"] as const)
      ),
    );
    const cpuMs = new Map(split.processes.map((one) => {
      const count = roles.filter((role) => role === one.role).length;
      return [one.role, (one.user_ms + one.system_ms) * count] as const;
    }));
    await cluster.close();
    const stalls = await measureStalls(ranks, plan);
    return {
      date: new Date().toISOString(),
      machine: describeMachine(),
      ranks,
      bytes: plan.bytes,
      rounds: plan.rounds,
      median_ms: significant(median(sample.ms)),
      ...split,
      ...(samples === undefined ? {} : splitWork(samples, roleOf, hash, cpuMs)),
      stalls,
      ...(noPerf === undefined ? {} : { no_perf: noPerf }),
    };
  } catch (error) {
    await cluster.kill();
    throw error;
  } finally {
    removeScratch(folder);
    for (const { child } of members) removePerfMap(child.pid);
  }
}

/** Removes what V8 wrote for perf. */
function removePerfMap(pid: number): void {
  try {
    Deno.removeSync(`/tmp/perf-${pid}.map`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}

async function main(): Promise<void> {
  const options = new Command("bench:profile").description("Where a large round's CPU goes.")
    .option("--ranks <n>", "ranks on one host", "4")
    .option("--size <bytes>", "f32 bytes per rank", "64MiB")
    .option("--rounds <n>", "measured rounds", "15")
    .option("--json <file>", "write the figures")
    .option("--out <dir>", "folder for the figures", "bench/out")
    .option("--docs", "write them to docs/performance instead, for deno task bench:report")
    .parse(Deno.args, { from: "user" })
    .opts<{
      ranks: string;
      size: string;
      rounds: string;
      json?: string;
      out: string;
      docs?: true;
    }>();
  const plan = { bytes: parseSize(options.size), warm: 2, rounds: Number(options.rounds) };
  console.error(machineLine(describeMachine()));
  const figures = await profile(Number(options.ranks), plan);
  console.log(`${figures.ranks} ranks, median ${formatMs(figures.median_ms)} while profiled\n`);
  if (figures.work !== undefined) console.log(asText(workTable(figures.work)) + "\n");
  if (figures.hot !== undefined) console.log(asText(hotTable(figures.hot)) + "\n");
  if (figures.no_perf !== undefined) console.log(`skipped: CPU by work, ${figures.no_perf}\n`);
  console.log(asText(threadTable(figures.threads)) + "\n");
  for (const { role, longest_ms, over_50_ms, rounds } of figures.stalls) {
    console.log(
      `${role}: longest stall of its event loop ${formatMs(longest_ms)}, ` +
        `${over_50_ms} over 50 ms in ${rounds} rounds`,
    );
  }
  await writeFigures("profile", figures, [], options);
}

if (import.meta.main) {
  endOnSignal();
  await main();
  Deno.exit(0);
}
