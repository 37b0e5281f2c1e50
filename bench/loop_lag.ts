/**
 * Measures how long an event loop stalls, from within: loaded into a relay or controller with
 * `deno run --preload=bench/loop_lag.ts`, so that the product needs no measuring code.
 *
 * A timer wants to run every {@link PERIOD_MS}; what it comes late is the stall. When the process
 * ends, one line on standard error holds the longest stalls with their moments, so that the bench can
 * pick those within its measured rounds.
 *
 * @module
 */

/** How often the timer wants to run, in milliseconds. */
const PERIOD_MS = 2;

/** Stalls shorter than this are not kept, in milliseconds. */
const KEPT_MS = 10;

/** The most stalls that are kept: the latest ones. */
const KEPT_COUNT = 800;

/** What the line on standard error starts with. */
export const LAG_PREFIX = "loop-lag ";

/** A stall: when it ended, on the clock of Date.now(), and how long it was, in milliseconds. */
export type Stall = [at: number, ms: number];

/** Starts measuring; reports when the process ends. */
function watchLoop(): void {
  const stalls: Stall[] = [];
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const late = now - last - PERIOD_MS;
    last = now;
    if (late < KEPT_MS) return;
    stalls.push([Date.now(), Math.round(late * 10) / 10]);
    if (stalls.length > KEPT_COUNT) stalls.shift();
  }, PERIOD_MS);
  Deno.unrefTimer(timer);
  globalThis.addEventListener("unload", () => {
    console.error(LAG_PREFIX + JSON.stringify(stalls));
  });
}

/** The stalls in what a process wrote to standard error, or nothing when it reported none. */
export function readStalls(stderr: string): Stall[] | undefined {
  const line = stderr.split("\n").findLast((line) => line.includes(LAG_PREFIX));
  if (line === undefined) return undefined;
  return JSON.parse(line.slice(line.indexOf(LAG_PREFIX) + LAG_PREFIX.length));
}

// As a preload this module is not the main one, but it is the first: the bench, which imports it to
// read the line, sets no such variable.
if (Deno.env.get("TIERFOLD_BENCH_LOOP_LAG") === "1") watchLoop();
