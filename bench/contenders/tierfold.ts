/**
 * Tierfold itself: one host, one relay, one controller, every frame and record authenticated.
 *
 * @module
 */

import type { Cluster } from "../cluster.ts";
import { startCluster } from "../cluster.ts";
import type { Contender, RoundPlan, Sample } from "../contender.ts";

/** Resident memory of a Deno process without its buffers, in bytes, rounded up. */
const PROCESS_BYTES = 120e6;

function contender(name: "tierfold" | "tierfold-bf16", wire: "f32" | "bf16"): Contender {
  return {
    name,
    unavailable: () => Promise.resolve(undefined),
    // Tensors and frame of every rank; K + 1 images of the relay; 3 of the controller.
    memoryBytes: (ranks, bytes) => (3 * ranks + 4) * bytes + (ranks + 2) * PROCESS_BYTES,
    open: (ranks) =>
      Promise.resolve({
        run: (plan) => run(ranks, wire, plan),
        close: () => Promise.resolve(),
      }),
  };
}

/** A cluster per size, so that peak memory is that size's own. */
async function run(ranks: number, wire: "f32" | "bf16", plan: RoundPlan): Promise<Sample> {
  let cluster: Cluster | undefined;
  try {
    cluster = await startCluster({ hosts: [{ ranks }], wire });
    const sample = await cluster.run(plan);
    await cluster.close();
    return sample;
  } catch (error) {
    await cluster?.kill();
    throw error;
  }
}

/** Tierfold with f32 on the wire. */
export const tierfold: Contender = contender("tierfold", "f32");

/** Tierfold with bf16 on the wire. */
export const tierfoldBf16: Contender = contender("tierfold-bf16", "bf16");
