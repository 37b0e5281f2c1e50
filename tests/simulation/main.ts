import { simulate } from "./simulate.ts";
const [from, count] = Deno.args.map(Number);
const t = performance.now();
let bad = 0, results = 0;
for (let s = from!; s < from! + count!; s++) {
  const v = await simulate(s);
  results += v.results;
  if (v.violations.length) { bad++; console.log(s, v.violations.slice(0, 3).join("\n   ")); }
}
const ms = performance.now() - t;
console.log({ bad, results, perSeed: ms / count!, rss: Deno.memoryUsage().rss >> 20 });
