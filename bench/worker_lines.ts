/**
 * How the bench drives a rank process: by lines on its standard input, answered on standard output.
 *
 *     process                         bench
 *     ready             ->
 *                       <-            go BYTES WARM ROUNDS
 *     (WARM rounds)
 *     warm              ->            (samples the other processes' CPU)
 *                       <-            measure
 *     (1 round, which takes up the skew of the start, then ROUNDS measured ones)
 *     result JSON       ->            (samples again)
 *                       <-            go ... or quit
 *
 * @module
 */

import { linesOf } from "./lines.ts";
import { memory, totalCpuSeconds } from "./proc.ts";

/** What a rank process reports of its measured rounds. */
export interface WorkerResult {
  /** Every measured round of every rank in the process, in milliseconds. */
  ms: number[];
  /** CPU seconds of the process per measured round. */
  cpu_s: number;
  /** Peak resident memory of the process, in MB. */
  rss_mb: number;
}

/** Makes one round and says how long it took, in milliseconds, for every rank in the process. */
export type Round = () => Promise<number[]>;

/**
 * Obeys the lines until `quit` or the end of input.
 *
 * @param prepare Called for every `go` with the size: allocates what the rounds need.
 */
export async function driveRounds(prepare: (bytes: number) => Round): Promise<void> {
  const lines = linesOf(Deno.stdin.readable);
  console.log("ready");
  for (;;) {
    const { value, done } = await lines.read();
    if (done || value === "quit") break;
    const [verb, ...numbers] = value.split(" ");
    const [bytes = 0, warm = 0, rounds = 0] = numbers.map(Number);
    if (verb !== "go") continue;
    const round = prepare(bytes);
    for (let i = 0; i < warm; i++) await round();
    console.log("warm");
    await lines.read();
    await round();
    const before = totalCpuSeconds(Deno.pid);
    const ms: number[] = [];
    for (let i = 0; i < rounds; i++) ms.push(...await round());
    const result: WorkerResult = {
      ms,
      cpu_s: (totalCpuSeconds(Deno.pid) - before) / rounds,
      rss_mb: memory(Deno.pid).peak_mb,
    };
    console.log("result " + JSON.stringify(result));
  }
  await lines.cancel();
}
