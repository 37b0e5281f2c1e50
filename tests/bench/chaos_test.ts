/** The chaos run, short, and what it judges with: each kind of wrong is found. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { Judge } from "../../bench/chaos/judge.ts";
import { TcpProxy } from "../../bench/chaos/proxy.ts";
import { asReport, type ChaosReport, exitCode, faultFigures } from "../../bench/chaos/report.ts";
import { fill, massOf, readResult, WORLD } from "../../bench/chaos/values.ts";
import { soon } from "../cluster/waiting.ts";
import { alive, CAN_LIST, descendants } from "../examples/descendants.ts";

const VALUES = 4 * WORLD;

/** What the root makes of these counts, by rank. */
function result(counts: readonly (number | undefined)[]): { data: Float32Array; mass: number } {
  const sum = new Float32Array(VALUES);
  let mass = 0;
  for (const [rank, count] of counts.entries()) {
    if (count === undefined) continue;
    const data = new Float32Array(VALUES);
    fill(data, rank, count);
    data.forEach((value, i) => sum[i]! += value * massOf(rank));
    mass += massOf(rank);
  }
  const factor = Math.fround(1 / mass);
  return { data: sum.map((value) => value * factor), mass };
}

Deno.test("chaos: a result says whose counts it holds, for every set of ranks and large counts", () => {
  for (let mass = 1; mass < 2 ** WORLD; mass++) {
    for (const base of [1, 7, 100_003, 2_000_000]) {
      const counts = Array.from(
        { length: WORLD },
        (_, rank) => mass & massOf(rank) ? base + rank : undefined,
      );
      const { data, mass: total } = result(counts);
      const rank = counts.findIndex((count) => count !== undefined);
      assertEquals(readResult(data, total, { rank, count: base + rank }), counts);
    }
  }
});

Deno.test("chaos: whatever is wrong with a result is told", () => {
  const good = result([5, 6, undefined, 8]);
  const own = { rank: 1, count: 6 };
  const problem = (change: (data: Float32Array) => void, mass = good.mass, of = own) => {
    const data = good.data.slice();
    change(data);
    const read = readResult(data, mass, of);
    assert(typeof read === "string", `accepted: ${read}`);
    return read;
  };
  const nothing = () => {};
  assertStringIncludes(problem((data) => data[3]! += 2 ** -20), "value 3, of rank 0's block");
  assertStringIncludes(problem((data) => data[9] = 1), "of rank 2's block, is 1");
  // A wrong divisor, and masses that no set of ranks has.
  for (const mass of [3, 15]) problem(nothing, mass);
  for (const mass of [0, 16, 0.5, NaN]) assertStringIncludes(problem(nothing, mass), "a mass of");
  assertStringIncludes(problem(nothing, 11, { rank: 1, count: 7 }), "gave 7, the result has 6");
  assertStringIncludes(problem(nothing, 11, { rank: 2, count: 1 }), "has undefined");
});

Deno.test("chaos: a frame in two rounds, and two results of one round, are told", () => {
  const judge = new Judge();
  const heard = (rank: number, ...counts: (number | null)[]) =>
    judge.hear({ rank, begun: 0, ended: 1, mass: 1, counts });
  assertEquals(heard(0, 1, 1, null, 1), []);
  assertEquals(heard(1, 1, 1, null, 1), []);
  assertEquals(heard(0, 2, 2, 1, 2), []);
  assertEquals(judge.rounds, 2);
  assertEquals([judge.highest(0), judge.highest(2), judge.highest(9)], [2, 1, 0]);
  // Rank 3's last frame again, in another round.
  const [again] = heard(0, 3, 3, 2, 2);
  assertStringIncludes(again!, "count 2 of rank 3 was in a round of the counts 2 2 1 2 too");
  assertEquals(heard(1, 3, 3, null, null).length, 2);
});

Deno.test("chaos: the report ends with exit code 1 for anything that went wrong", () => {
  const figures = faultFigures(["b", "a", "c"], [
    { kind: "a", nextMs: 10, wholeMs: 100 },
    { kind: "a", nextMs: 30, wholeMs: 300 },
    { kind: "b", nextMs: 1, wholeMs: 2 },
  ]);
  assertEquals(figures.map(({ kind, count }) => [kind, count]), [["b", 1], ["a", 2]]);
  assertEquals(figures[1]!.next_ms, { median: 20, max: 30 });
  const report: ChaosReport = {
    seed: 7,
    seconds: 10,
    machine: { cpu: "some cpu", cores: 2, memory_gib: 24, kernel: "linux", deno: "2" },
    rounds: 100,
    rounds_per_second: 10,
    faults: figures,
    skipped: ["disk full: because"],
    wrong_results: 0,
    hangs: 0,
    lost_checkpoints: 0,
    crashes: 0,
    acknowledged_checkpoints: 3,
    failed_writes: 0,
    bad_inputs: 4,
    restarts: { controller: 1, relays: 2, ranks: 3 },
    comebacks: 5,
    violations: [],
  };
  assertEquals(exitCode(report), 0);
  assertEquals(exitCode({ ...report, rounds: 0 }), 1);
  const bad = { ...report, violations: [{ kind: "hang" as const, what: "the round after a" }] };
  assertEquals(exitCode(bad), 1);
  assertStringIncludes(asReport(bad), "HANG: the round after a");
  assertStringIncludes(asReport(report), "skipped: disk full: because");
});

Deno.test("chaos: a proxy passes bytes on, cuts, refuses while it leads nowhere, and comes back", async () => {
  using server = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const taps: string[] = [];
  const proxy = new TcpProxy(
    `127.0.0.1:${server.addr.port}`,
    (connection, direction, bytes) =>
      taps.push(`${connection} ${direction} ${new TextDecoder().decode(bytes)}`),
  );
  const dial = () =>
    Deno.connect({ hostname: "127.0.0.1", port: Number(proxy.address.split(":")[1]) });
  const read = async (conn: Deno.TcpConn) => {
    const chunk = new Uint8Array(100);
    const got = await soon("bytes", conn.read(chunk).catch(() => null));
    return got === null ? null : new TextDecoder().decode(chunk.subarray(0, got));
  };
  try {
    for (let i = 0; i < 2; i++) {
      using near = await dial();
      using far = await soon("a connection", server.accept());
      await near.write(new TextEncoder().encode("up"));
      assertEquals(await read(far), "up");
      await far.write(new TextEncoder().encode("down"));
      assertEquals(await read(near), "down");
      assertEquals(proxy.connections, 1);
      assertEquals(proxy.cut(), 1);
      assertEquals([await read(near), await read(far)], [null, null]);
      proxy.lead(undefined);
      const refused = await dial().then(() => false, () => true);
      assert(refused, "a proxy that leads nowhere accepts connections");
      proxy.lead(`127.0.0.1:${server.addr.port}`);
    }
    assertEquals(taps, ["0 up up", "0 down down", "1 up up", "1 down down"]);
  } finally {
    await proxy.close();
  }
});

Deno.test("chaos: a short run goes well", async () => {
  const file = await Deno.makeTempFile();
  try {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--allow-all", new URL("../../bench/chaos.ts", import.meta.url).pathname],
        ...["--minutes", "0.2", "--json", file],
      ],
      env: { NO_COLOR: "1" },
    }).output();
    const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
    assertEquals(code, 0, text);
    const report: ChaosReport = JSON.parse(await Deno.readTextFile(file));
    assertEquals(report.violations, [], text);
    assert(report.rounds > 0 && report.acknowledged_checkpoints > 0, text);
    assert(report.faults.length > 0, text);
    assertStringIncludes(text, `--seed ${report.seed} replays it`);
  } finally {
    await Deno.remove(file);
  }
});

Deno.test({
  name: `chaos: SIGTERM ends every process of it${CAN_LIST ? "" : " (skipped: no /proc)"}`,
  ignore: !CAN_LIST,
  fn: async () => {
    const script = new URL("../../bench/chaos.ts", import.meta.url).pathname;
    const child = new Child({
      name: "the chaos run",
      command: [Deno.execPath(), "run", "--allow-all", script, "--minutes", "5"],
      env: { NO_COLOR: "1" },
    });
    await child.expect("  ", 120_000);
    const members = descendants(child.pid);
    assert(members.length >= 4, `${members.length} processes`);
    child.kill("SIGTERM");
    assertEquals(await child.finish(60_000), 143);
    assertEquals(alive(members), []);
  },
});
