/**
 * `deno task bench:report`: writes docs/performance.md from the figures in docs/performance, which the
 * benches leave there with --docs.
 *
 * @module
 */

import type { Plot } from "./bench_plots.ts";
import { benchPlots } from "./bench_plots.ts";
import type { BenchFigures, Skip } from "./figures.ts";
import { hostsTable, RING_WINS, uplinkTable } from "./hosts_figures.ts";
import { hostsPlots } from "./hosts_plots.ts";
import { machineLine } from "./machine.ts";
import { DOCS_FOLDER } from "./output.ts";
import { hotTable, threadTable, workTable } from "./profile_figures.ts";
import { formatMs, formatSize } from "./sizes.ts";
import { soakPlot, soakTable } from "./soak_figures.ts";
import { asMarkdown, benchTable } from "./table.ts";
import type { AllFigures } from "./targets.ts";
import { targets, targetTable } from "./targets.ts";

/** Written by hand, taken over as it is: what limits a number, and what was tried. */
const NOTES = `${DOCS_FOLDER}/notes.md`;

/** The whole report. */
export function report(all: AllFigures, notes: string | undefined): string {
  const sections = [
    "# Performance",
    "Written by `deno task bench:report` from the figures in `docs/performance`; not edited by hand.",
    head(all.bench),
    "## The numbers to reach",
    asMarkdown(targetTable(targets(all))),
    notes,
    ...benchSection(all),
    ...hostsSection(all),
    ...profileSection(all),
    ...soakSection(all),
  ];
  return sections.filter((section) => section !== undefined && section !== "").join("\n\n") + "\n";
}

function head(bench: BenchFigures | undefined): string | undefined {
  if (bench === undefined) return undefined;
  const { machine, hash_gb_s, hash_all_gb_s, bound_ms, runs, date } = bench;
  const rate = (value: number) => `${value.toFixed(2)} GB/s`;
  return `Machine: ${machineLine(machine)}. Measured on ${date.slice(0, 10)}.

HMAC-SHA256 runs at ${rate(hash_gb_s)} on one core alone and at ${
    rate(hash_all_gb_s)
  } on each while all
cores hash. On the plain wire a round of R ranks on H hosts hashes 3R + 5H + 2 model images: every rank
signs its frame (R) and verifies the result's (R), relays verify their ranks' frames (R), every relay signs
its fold's frame and record (2H) and verifies the result's record (H), the controller verifies both tags of
every fold (2H) and signs the result's frame and record (2). The **bound** divides these bytes by one core's
rate times the cores, as if nothing else cost anything: ${
    formatMs(bound_ms)
  } for 64 MiB, 4 ranks, one host.
Relays and controllers of Tierfold seal their channels, and then hash each of these frames once, not once
for the frame and once for the record: 3R + 3H + 1 images, 16 instead of 19 there. The bound stays that of
the plain wire, so that figures can be compared.

Contenders of a row run one after another, ${runs} times over (A B A B), each time as fresh processes on
the same machine; figures are medians over all ranks, rounds and runs. The column "runs" is the noise:
the smallest and the largest median of a run. With few rounds the p99 is near their maximum. CPU is per
process and round, RSS the peak of the largest process. Only ratios of figures from one run mean anything
elsewhere.

- **tierfold**: ranks, one relay and one controller as processes, everything authenticated, real command
  lines; **tierfold-bf16** the same with bf16 on the wire.
- **gloo**: torch's all_reduce over loopback TCP. **mpi-tcp**: OpenMPI's Allreduce over TCP, shared memory
  switched off; its processes poll while they wait, which counts as CPU. Both authenticate nothing, and
  only the call is timed, after a barrier, while a Tierfold round includes scaling by the mass.
- **echo**: the ceiling of plain sockets in Deno. The ranks send the same bytes to one process and get them
  back, with no tags and no sums, and without the leg between relay and controller.`;
}

function images(plots: readonly Plot[]): string {
  return plots.map(({ file, title }) => `![${title}](performance/${file})`).join("\n\n");
}

function skips(skipped: readonly Skip[]): string {
  return skipped.map(({ name, ranks, bytes, reason }) => {
    const where = ranks === 0 ? "" : `, ${ranks} ranks, ${formatSize(bytes)}`;
    return `- Not measured: ${name}${where}: ${reason}`;
  }).join("\n");
}

function benchSection({ bench }: AllFigures): string[] {
  if (bench === undefined) return [];
  return [
    "## Rounds on one machine, side by side",
    "`deno task bench`",
    images(benchPlots(bench.rows)),
    asMarkdown(benchTable(bench.rows)),
    skips(bench.skipped),
  ];
}

function hostsSection({ hosts }: AllFigures): string[] {
  if (hosts === undefined) return [];
  return [
    "## Rounds across hosts",
    "`deno task bench:hosts`: one network namespace per host on one machine, joined by veth links and a " +
    "bridge, both ends of every link shaped by a token bucket (no added delay). All hosts share the " +
    "machine's cores. The star's bound is 2 x hosts x model / link rate (hosts - 1 where the controller is " +
    "beside a relay), the ring's 2 (N - 1) / N x model / link rate for N ranks; headers of Ethernet, IP and " +
    "TCP, about 5 %, are in neither. Bytes per host are the last host's interface counters, less 66 bytes " +
    "of headers per packet.",
    RING_WINS,
    images(hostsPlots(hosts.rows)),
    asMarkdown(hostsTable(hosts.rows)),
    "Bytes per host and round do not depend on the number of ranks on the host:",
    asMarkdown(uplinkTable(hosts.uplink)),
    skips(hosts.skipped),
  ];
}

function profileSection({ profile }: AllFigures): string[] {
  if (profile === undefined) return [];
  const { ranks, bytes, rounds, median_ms, work, hot, threads, stalls, no_perf } = profile;
  return [
    "## Where a large round's CPU goes",
    `\`deno task bench:profile\`: ${ranks} ranks, ${formatSize(bytes)}, ${rounds} rounds, median ` +
    `${
      formatMs(median_ms)
    } while profiled. Shares come from perf's samples of the CPU clock, totals from ` +
    "/proc. Deno's binary has no symbols: its hashing code is the code that a process samples that does " +
    "nothing but hash.",
    work === undefined ? `Not split by work: ${no_perf}.` : asMarkdown(workTable(work)),
    "By thread, per process and round:",
    asMarkdown(threadTable(threads)),
    hot === undefined ? "" : "The busiest places:",
    hot === undefined ? "" : asMarkdown(hotTable(hot)),
    stalls.map(({ role, longest_ms, over_50_ms, rounds }) =>
      `- Event loop of the ${role}: longest stall ${
        formatMs(longest_ms)
      }, ${over_50_ms} over 50 ms in ` +
      `${rounds} rounds (a 2 ms timer loaded into the process, another run, without perf).`
    ).join("\n"),
  ];
}

function soakSection({ soak }: AllFigures): string[] {
  if (soak === undefined) return [];
  return [
    "## Soaks",
    "`deno task bench:soak`: RSS early is the mean over the second fifth of the time, late over the last " +
    "one, per process. With many ranks, 32 of them share a process, each with its own connection.",
    asMarkdown(soakTable(soak.soaks)),
    images(soak.soaks.map(soakPlot)),
  ];
}

/** The figures that the benches left. */
async function readFigures(): Promise<AllFigures> {
  const all: Record<string, unknown> = {};
  for (const name of ["bench", "hosts", "soak", "profile"]) {
    const text = await readIfThere(`${DOCS_FOLDER}/${name}.json`);
    if (text === undefined) console.error(`${DOCS_FOLDER}/${name}.json is not there: left out`);
    else all[name] = JSON.parse(text);
  }
  const kernels = await readIfThere(`${DOCS_FOLDER}/kernels.md`);
  return { ...all, ...(kernels === undefined ? {} : { kernels }) };
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await Deno.readTextFile(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

if (import.meta.main) {
  const all = await readFigures();
  await Deno.writeTextFile("docs/performance.md", report(all, await readIfThere(NOTES)));
  const plots = [
    ...benchPlots(all.bench?.rows ?? []),
    ...hostsPlots(all.hosts?.rows ?? []),
    ...(all.soak?.soaks ?? []).map(soakPlot),
  ];
  for (const { file, svg } of plots) await Deno.writeTextFile(`${DOCS_FOLDER}/${file}`, svg);
  // The formatter decides how prose is wrapped, in this file as in every other.
  await new Deno.Command(Deno.execPath(), { args: ["fmt", "--quiet", "docs/performance.md"] })
    .output();
  console.log(`docs/performance.md and ${plots.length} plots written`);
}
