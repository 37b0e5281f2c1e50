import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { BenchFigures, DetailRow } from "../../bench/figures.ts";
import { parseReport } from "../../bench/perf.ts";
import { workOf } from "../../bench/profile_figures.ts";
import { report } from "../../bench/report.ts";
import { targets } from "../../bench/targets.ts";

const MIB = 1024 ** 2;

function row(name: DetailRow["name"], bytes: number, median_ms: number): DetailRow {
  return {
    name,
    ranks: 4,
    bytes,
    median_ms,
    p99_ms: 2 * median_ms,
    cpu_s: 0.1,
    rss_mb: 400,
    ...(name.startsWith("tierfold") ? { bound_ms: 400 } : {}),
    run_medians_ms: [median_ms, median_ms + 1],
    rounds: 11,
    roles: name === "tierfold"
      ? { relay: { processes: 1, cpu_s: 0.1, rss_mb: bytes > MIB ? 400 : 90 } }
      : {},
  };
}

function bench(tierfoldMs: number): BenchFigures {
  return {
    date: "2026-01-01T00:00:00Z",
    machine: { cpu: "A CPU", cores: 2, memory_gib: 24, kernel: "linux", deno: "2.9.6" },
    hash_gb_s: 1.5,
    hash_all_gb_s: 1.4,
    bound_ms: 400,
    runs: 2,
    rows: [
      row("tierfold", 64 * MIB, tierfoldMs),
      row("gloo", 64 * MIB, 180),
      row("tierfold", 4_000, 0.9),
      row("gloo", 4_000, 3),
    ],
    skipped: [{ name: "mpi-tcp", ranks: 0, bytes: 0, reason: "no mpirun" }],
  };
}

Deno.test("targets are judged, and what was not measured says so", () => {
  const judge = (ms: number) =>
    targets({ bench: bench(ms) }).map(({ reached }) => reached).slice(0, 5);
  assertEquals(judge(650), [true, true, undefined, true, true]);
  assertEquals(judge(701), [false, true, undefined, true, true]);
  assertEquals(judge(757), [false, false, undefined, true, true]);
  const kernel = (verdict: string) =>
    targets({ kernels: `# Kernels\n\n${verdict}` }).find(({ what }) => what.includes("kernel"))
      ?.reached;
  const never = "simd was faster than plain at every size.";
  assertEquals(kernel(`${never} At 64 MiB simd reached 95 % of the bound (to reach: 90 %).`), true);
  assertEquals(
    kernel(
      `${never} At 64 MiB simd reached 85 % of the bound (to reach: 90 %, missed in this run).`,
    ),
    false,
  );
  assert(targets({}).every(({ reached }) => reached === undefined));
});

Deno.test("the report names the machine, the figures, the skips and the notes", () => {
  const text = report({ bench: bench(650) }, "## What limits it\n\nHashing.");
  for (
    const part of [
      "A CPU, 2 cores",
      "1.63 x (650 ms / 400 ms); 1.93 x what",
      "650-651",
      "no mpirun",
      "Hashing.",
      ".svg)",
    ]
  ) {
    assertStringIncludes(text, part);
  }
  assertStringIncludes(report({}, undefined), "not measured");
});

Deno.test("perf's report is read, and samples are told apart", () => {
  const samples = parseReport(`# comment
     345|  19704:deno           |[kernel.kallsyms]   |[k] rep_movs_alternative
     12 |  19706:V8 DefaultWorke|deno               |[.] 0x0000000001ca2882
     5  |  19704:deno           |[JIT] tid 19704    |[.] JS:*fold file:///a.ts:1:13
     3  |  19704:deno           |[JIT] tid 19704    |[.] JS:wasm-function[2]-2-turbofan
     2  |  19704:deno           |libc.so.6          |[.] __memmove_avx512_unaligned_erms

`);
  assertEquals(samples.length, 5);
  assertEquals(samples[1]?.thread, "V8 DefaultWorke");
  assertEquals(samples.map((sample) => workOf(sample, new Set([0x1ca2]))), [
    "kernel: copies of socket bytes",
    "HMAC-SHA256",
    "JavaScript",
    "WASM: fold, scale, checks",
    "user copies (memmove, memset)",
  ]);
  assertEquals(workOf(samples[1]!, new Set()), "Deno's runtime, V8, others");
});
