/**
 * OpenMPI's Allreduce over loopback TCP: shared memory is switched off, as between machines.
 *
 * @module
 */

import { Child, succeeds } from "../child.ts";
import type { Contender, RoundPlan, Sample, Session } from "../contender.ts";
import { byRole, patienceMs } from "../contender.ts";
import { makeScratch, removeScratch } from "../scratch.ts";
import type { WorkerResult } from "../worker_lines.ts";

/** Resident memory of an MPI process without its buffers, in bytes, rounded up. */
const PROCESS_BYTES = 50e6;

/** mpirun's options: TCP only, on loopback only, more ranks than cores allowed. */
const MPIRUN = [
  "mpirun",
  "--allow-run-as-root",
  "--oversubscribe",
  "--mca",
  "pml",
  "ob1",
  "--mca",
  "btl",
  "tcp,self",
  "--mca",
  "btl_tcp_if_include",
  "lo",
  "--mca",
  "oob_tcp_if_include",
  "lo",
];

/**
 * glibc maps allocations above 32 MiB afresh every time, and OpenMPI allocates in every Allreduce: the
 * page faults made a round of 64 MiB three times as slow. Kept memory is the better peer.
 */
const KEEP_MEMORY = { MALLOC_MMAP_MAX_: "0", MALLOC_TRIM_THRESHOLD_: "9000000000" };

/** OpenMPI among the contenders. */
export const mpi: Contender = {
  name: "mpi-tcp",

  async unavailable() {
    if (!await succeeds(["mpicc", "--version"])) return "no mpicc (Debian: libopenmpi-dev)";
    if (!await succeeds(["mpirun", "--version"])) return "no mpirun (Debian: openmpi-bin)";
    return undefined;
  },

  // The fresh values, the buffer, and one receive buffer of the algorithm.
  memoryBytes: (ranks, bytes) => ranks * (3 * bytes + PROCESS_BYTES),

  async open(ranks): Promise<Session> {
    const folder = makeScratch("mpi");
    const source = new URL("../peers/mpi_allreduce.c", import.meta.url).pathname;
    const binary = `${folder}/mpi_allreduce`;
    const close = () => Promise.resolve(removeScratch(folder));
    const compiler = new Child({
      name: "mpicc",
      command: ["mpicc", "-O2", "-Wall", "-o", binary, source],
    });
    if (await compiler.finish(60_000) !== 0) {
      await close();
      throw new Error(`bench: mpicc could not compile ${source}:\n${compiler.stderr}`);
    }
    return { run: (plan) => run(binary, ranks, plan), close };
  },
};

/** One mpirun for one size: its processes poll while they wait, so none may stay between sizes. */
async function run(binary: string, ranks: number, plan: RoundPlan): Promise<Sample> {
  const { bytes, warm, rounds } = plan;
  const child = new Child({
    name: `mpirun of ${ranks} ranks`,
    command: [...MPIRUN, "-np", String(ranks), binary, ...[bytes, warm, rounds].map(String)],
    env: KEEP_MEMORY,
  });
  try {
    const line = await child.expect("result ", patienceMs(plan));
    const { ranks: results } = JSON.parse(line) as { ranks: WorkerResult[] };
    return {
      ms: results.flatMap((result) => result.ms),
      roles: byRole(results.map(({ cpu_s, rss_mb }) => ({ role: "rank", cpu_s, rss_mb }))),
    };
  } finally {
    await child.finish();
  }
}
