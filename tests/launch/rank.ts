// A rank that a launcher started: finds its place, takes part in two rounds, and says what came of it.
import { launchPlace, RankClient } from "../../mod.ts";

const { localRank, source } = launchPlace();
await using client = await RankClient.connect({ salt: Deno.env.get("TIERFOLD_SALT") ?? "" });
const counts = await client.gatherCounts(client.rank + 1);
const values = Float32Array.of(client.rank / 3, 1);
const { mass } = await client.allReduce([values], { mass: client.rank + 0.5 });
console.log(JSON.stringify({
  language: "TypeScript",
  rank: client.rank,
  worldSize: client.worldSize,
  localRank,
  source,
  counts: [...counts],
  mass,
  values: [...values],
}));
