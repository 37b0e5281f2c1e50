import { assert, assertEquals } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { measureHosts, measureUplink } from "../../bench/hosts_measure.ts";
import type { Network } from "../../bench/netns.ts";
import { networkUnavailable } from "../../bench/netns.ts";

const missing = await networkUnavailable();

function hostsTest(name: string, fn: () => Promise<void>): void {
  Deno.test({
    name: missing === undefined ? name : `${name} (skipped: ${missing})`,
    ignore: missing !== undefined,
    fn,
  });
}

/** The namespaces of a process's network. */
async function namespacesOf(pid: number): Promise<string[]> {
  const { stdout } = await new Deno.Command("ip", { args: ["netns", "list"] }).output();
  return new TextDecoder().decode(stdout).split("\n")
    .filter((line) => line.startsWith(`tfbench-${pid}-`));
}

hostsTest("bench:hosts: rounds cross shaped links, and nothing is left behind", async () => {
  const seen: (Network | undefined)[] = [];
  const rows = await measureHosts(
    {
      hosts: 2,
      ranksPerHost: 1,
      bitsPerSecond: 1e9,
      sizes: [4_000],
      runs: 1,
      names: ["tierfold", "tierfold-beside"],
      secondsPerRun: 0,
    },
    (network) => seen.push(network),
    () => {},
  );
  assertEquals(rows.map(({ name }) => name), ["tierfold", "tierfold-beside"]);
  assert(rows.every(({ median_ms, bound_ms }) => median_ms > bound_ms), "faster than the links");
  assert(seen[0] !== undefined && seen.at(-1) === undefined);
  assertEquals(await namespacesOf(Deno.pid), []);
});

hostsTest("uplink bytes per host and round are model + 64, for any number of ranks", async () => {
  // On a busy machine TCP sends again what was not lost, which the counters count: hence another try.
  for (let tries = 1;; tries++) {
    const rows = await measureUplink([1, 3], { bytes: 40_000, warm: 1, rounds: 10 }, () => {});
    const framing = rows.map((row) => [
      row.uplink_bytes - row.bytes,
      row.downlink_bytes - row.bytes,
    ]);
    if (tries < 3 && framing.flat().some((bytes) => bytes > 64)) continue;
    assertEquals(framing, [[64, 64], [64, 64]]);
    return;
  }
});

hostsTest("SIGINT ends bench:hosts with all its processes and namespaces", async () => {
  const script = new URL("../../bench/hosts.ts", import.meta.url).pathname;
  const child = new Child({
    name: "bench:hosts",
    command: [Deno.execPath(), "run", "--allow-all", script, "--quick"],
  });
  while ((await namespacesOf(child.pid)).length < 4) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  child.kill("SIGINT");
  assertEquals(await child.finish(), 130);
  assertEquals(await namespacesOf(child.pid), []);
});
