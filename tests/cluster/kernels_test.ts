// A whole cluster summing with each kernel: the same bits from all.
import { assertEquals } from "@std/assert";
import { findAdapter } from "../../kernels/adapter.ts";
import { Cluster, type ServerOptions } from "./cluster.ts";

const adapter = await findAdapter();
const HOSTS = [[0, 1, 2], [3]];

/** Values of all magnitudes, none so small that a GPU may take it for zero. */
function given(rank: number): number[] {
  return Array.from({ length: 1000 }, (_, i) => Math.sin(i * 7.1 + rank) * 10 ** ((i + rank) % 17));
}

/** The result of a round in a cluster whose relays and controller sum with `kernel`. */
async function resultWith(kernel: string): Promise<number[]> {
  const options: ServerOptions = {
    args: ["--kernel", kernel],
    // ONNX Runtime loads its own files.
    ...kernel.startsWith("ort") ? { permissions: ["--allow-all"] } : {},
  };
  await using cluster = await Cluster.start(HOSTS, options, { 0: options, 1: options });
  const hosts = await Promise.all(HOSTS.map((ranks) => cluster.ranks(ranks)));
  const masses = [1, 2.5, 3, 0.5];
  for (const [host, process] of hosts.entries()) {
    const ranks = HOSTS[host]!;
    await process.begin(ranks.map(given), ranks.map((rank) => masses[rank]!));
  }
  const results = [];
  for (const process of hosts) results.push(...(await process.round()).values);
  for (const values of results) assertEquals(values, results[0]);
  for (const member of [cluster.controller, ...cluster.relays]) {
    await member.logged(new RegExp(`kernel ${kernel}: ${kernel}( on .*)? sums`));
  }
  // Mesa's software adapter now and then crashes a process that exits with everything done.
  if (kernel !== "ort-webgpu") await cluster.finish(hosts);
  return results[0]!;
}

let plain: Promise<number[]> | undefined;

for (const kernel of ["simd", "ort-wasm", "ort-webgpu"]) {
  const ignore = kernel === "ort-webgpu" && adapter === undefined;
  Deno.test({
    name: `a cluster with --kernel ${kernel} gives the bits of --kernel plain${
      ignore ? " (skipped: no WebGPU adapter on this machine)" : ""
    }`,
    ignore,
    fn: async () => {
      plain ??= resultWith("plain");
      assertEquals(await resultWith(kernel), await plain);
    },
  });
}
