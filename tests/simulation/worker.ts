// Runs seeds one after another and prints what became of each, a line of JSON a seed: FIRST STEP COUNT.
import { simulate } from "./simulate.ts";

const [first = 0, step = 1, count = 1] = Deno.args.map(Number);
const encoder = new TextEncoder();
for (let i = 0; i < count; i++) {
  const { trace: _, ...verdict } = await simulate(first + i * step);
  Deno.stdout.writeSync(encoder.encode(JSON.stringify(verdict) + "\n"));
}
