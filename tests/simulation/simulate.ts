// Runs one seed.
import { startLogging } from "../../cli/log.ts";
import { Faults } from "./faults.ts";
import { makePlan } from "./plan.ts";
import { CALM_ROUNDS, SimulatedRank } from "./ranks.ts";
import { seededRandomness } from "./randomness.ts";
import { Trace } from "./trace.ts";
import { inVirtualTime, sleep } from "./virtual_time.ts";
import { runController, runRelay, World } from "./world.ts";

/** How long ranks may take for their rounds once faults have stopped, in milliseconds. */
const CALM_MS = 250_000;
/** How long all may take to end after the last rank has closed, in milliseconds. */
const CLOSING_MS = 150_000;
/** No run takes so long, in milliseconds. */
const LIMIT_MS = 3_600_000;

/** What became of a seed. */
export interface Verdict {
  readonly seed: number;
  /** What must not be; empty when all is well. */
  readonly violations: readonly string[];
  /** Of all that happened: the same seed has the same. */
  readonly hash: string;
  /** Results that ranks got. */
  readonly results: number;
  /** Virtual time, in milliseconds. */
  readonly ms: number;
  readonly faults: number;
  /** All that happened, when asked for. */
  readonly trace: readonly string[];
}

/** Runs a seed and judges it. Not two at a time in one thread. */
export async function simulate(
  seed: number,
  options: { trace?: boolean } = {},
): Promise<Verdict> {
  const plan = makePlan(seed);
  const trace = new Trace(options.trace ?? false);
  const world = new World(plan, trace);
  const unhandled = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    const { reason } = event;
    world.violate(`unhandled: ${reason instanceof Error ? reason.stack : reason}`);
  };
  globalThis.addEventListener("unhandledrejection", unhandled);
  using _logging = startLogging({ format: "human", level: "info" }, {
    color: false,
    write: (line) => {
      // Warnings are for what peers do; errors would be about us.
      if (/^\S+ (error|fatal) /.test(line)) world.violate(line.trimEnd());
      else trace.note(line.trimEnd());
    },
  });
  using _randomness = seededRandomness(seed);
  let ms = 0;
  try {
    const elapsed = await inVirtualTime(() => live(world), LIMIT_MS);
    ms = elapsed.ms;
    if (elapsed.timers > 0) world.violations.push(`${elapsed.timers} timers are left`);
  } catch (error) {
    world.violations.push(error instanceof Error ? error.stack ?? error.message : String(error));
  } finally {
    globalThis.removeEventListener("unhandledrejection", unhandled);
  }
  return {
    seed,
    violations: world.violations,
    hash: trace.close(),
    results: world.oracle.results,
    ms,
    faults: plan.faults.length,
    trace: trace.lines,
  };
}

async function live(world: World): Promise<void> {
  const { plan } = world;
  world.trace.note(JSON.stringify(plan));
  const ranks = Array.from({ length: plan.worldSize }, (_, rank) => new SimulatedRank(world, rank));
  const all = Promise.all([
    runController(world),
    ...plan.hosts.map((_, index) => runRelay(world, index)),
    ...ranks.map((rank) => rank.run()),
  ]);
  let ended = false;
  all.then(() => ended = true, () => ended = true);
  await new Faults(world, ranks).run();
  world.trace.note("faults stop");
  world.calm = true;
  const slow = () => world.calmRounds.flatMap((n, rank) => n < CALM_ROUNDS ? [rank] : []);
  await until(CALM_MS, () => slow().length === 0);
  if (slow().length > 0) {
    world.violate(
      `ranks ${slow()} have not finished ${CALM_ROUNDS} rounds ${CALM_MS} ms after the last fault`,
    );
  }
  world.trace.note("closing");
  world.closing = true;
  await until(CLOSING_MS, () => ended);
  if (!ended) throw new Error(`not everything has ended ${CLOSING_MS} ms after the ranks closed`);
  await all;
  const { wires, listeners } = world.lan;
  for (const wire of wires) world.violate(`connection ${wire.name} is left open`);
  for (const address of listeners.keys()) world.violate(`${address} is still listened on`);
}

/** Waits until something holds, at most so long. */
async function until(ms: number, holds: () => boolean): Promise<void> {
  for (const end = Date.now() + ms; !holds() && Date.now() < end;) await sleep(100);
}
