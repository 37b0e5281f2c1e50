/**
 * Rank processes of the bench: one or more Tierfold ranks that do nothing but rounds.
 *
 *     TIERFOLD_SALT=... deno run --allow-all bench/rank_worker.ts WORLD_SIZE WIRE RANK@HOST:PORT ...
 *
 * WIRE is f32 or bf16. Speaks the lines of worker_lines.ts. Several ranks in one process save
 * processes where hundreds of ranks are simulated; each has its own connection and its own tensors.
 *
 * @module
 */

import { RankClient } from "../mod.ts";
import { driveRounds } from "./worker_lines.ts";

/** A mass that is not 1, so that scaling cannot be skipped. */
const MASS = 16;

/** So much slower than any round here that only a hang reaches it. */
const ROUND_TIMEOUT_MS = 120_000;

if (import.meta.main) {
  const [worldSize, wire, ...places] = Deno.args;
  const salt = Deno.env.get("TIERFOLD_SALT") ?? "";
  const clients = await Promise.all(places.map((place) => {
    const [rank, relay = ""] = place.split("@");
    return RankClient.connect({
      relay,
      rank: Number(rank),
      worldSize: Number(worldSize),
      salt,
      joinTimeoutMs: 60_000,
      roundTimeoutMs: ROUND_TIMEOUT_MS,
      wire: wire === "bf16" ? "bf16" : "f32",
    });
  }));
  await driveRounds((bytes) => {
    const models = clients.map(() => Float32Array.from({ length: bytes / 4 }, Math.random));
    return () =>
      Promise.all(clients.map(async (client, index) => {
        const start = performance.now();
        await client.allReduce([models[index] as Float32Array], { mass: MASS });
        return performance.now() - start;
      }));
  });
  await Promise.all(clients.map((client) => client.close()));
}
