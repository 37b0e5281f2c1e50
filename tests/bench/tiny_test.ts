/** Each bench runs here too, tiny, so that none can rot. */
import { assert, assertEquals } from "@std/assert";
import { echo } from "../../bench/contenders/echo.ts";
import { gloo } from "../../bench/contenders/gloo.ts";
import { mpi } from "../../bench/contenders/mpi.ts";
import { tierfold, tierfoldBf16 } from "../../bench/contenders/tierfold.ts";
import { bench } from "../../bench/main.ts";
import { profile } from "../../bench/profile.ts";
import { soak } from "../../bench/soak.ts";

const PLAN = {
  ranks: [2],
  sizes: [4_000],
  runs: 2,
  rounds: (bytes: number) => ({ bytes, warm: 1, rounds: 3 }),
  hashPassSeconds: 0.01,
};

for (const contender of [tierfold, tierfoldBf16, echo, gloo, mpi]) {
  const missing = await contender.unavailable();
  const name = `bench: rounds of ${contender.name}`;
  Deno.test({
    name: missing === undefined ? name : `${name} (skipped: ${missing})`,
    ignore: missing !== undefined,
    fn: async () => {
      const figures = await bench(PLAN, [contender], () => {});
      assertEquals(figures.skipped, []);
      assertEquals(figures.rows.length, 1);
      const row = figures.rows[0]!;
      assertEquals([row.name, row.ranks, row.bytes], [contender.name, 2, 4_000]);
      assertEquals(row.run_medians_ms.length, 2);
      assert(row.median_ms > 0 && row.rss_mb > 1 && row.p99_ms >= row.median_ms);
      assertEquals(row.bound_ms !== undefined, contender.name.startsWith("tierfold"));
      const roles = Object.entries(row.roles).map(([role, of]) => `${of.processes} ${role}`);
      const servers: Record<string, string[]> = {
        "tierfold": ["1 controller", "1 relay"],
        "tierfold-bf16": ["1 controller", "1 relay"],
        "echo": ["1 server"],
      };
      assertEquals(roles, ["2 rank", ...servers[contender.name] ?? []]);
    },
  });
}

Deno.test("bench: a contender that needs too much memory or time is skipped by name", async () => {
  const greedy = { ...echo, memoryBytes: () => 1e18 };
  const large = await bench(PLAN, [greedy], () => {});
  assertEquals(large.rows, []);
  assert(large.skipped[0]?.reason.includes("memory"), large.skipped[0]?.reason);
  const late = await bench({ ...PLAN, budgetMs: 0 }, [echo], () => {});
  assertEquals(late.rows, []);
  assert(late.skipped[0]?.reason.includes("minute"), late.skipped[0]?.reason);
});

Deno.test("bench:soak: ranks of several relays share processes, and all end cleanly", async () => {
  const result = await soak({
    name: "tiny",
    relays: 2,
    ranksPerRelay: 3,
    ranksPerProcess: 3,
    bytes: 400,
    rounds: 20,
    samplePeriodMs: 20,
  });
  assertEquals([result.ranks, result.relays, result.clean_end], [6, 2, true]);
  const processes = Object.entries(result.memory).map(([role, trend]) => [role, trend.processes]);
  assertEquals(Object.fromEntries(processes), { rank: 2, relay: 2, controller: 1 });
  assert(result.samples.length > 0 && result.median_ms > 0);
});

Deno.test("bench:profile: CPU is split by process and thread, and stalls are reported", async () => {
  const figures = await profile(2, { bytes: 1024 ** 2, warm: 1, rounds: 5 });
  assertEquals(figures.processes.map(({ role }) => role).sort(), ["controller", "rank", "relay"]);
  assertEquals(figures.stalls.map(({ role }) => role).sort(), ["controller", "relay"]);
  assert(figures.threads.length >= 3);
  assertEquals(figures.work === undefined, figures.no_perf !== undefined);
});
