/**
 * A chaos run: faults from a seed, one after another or two at once, and how long the cluster takes over
 * each.
 *
 * @module
 */
import { DatabaseSync } from "node:sqlite";
import { loadCheckpoint } from "../../controller/state/load.ts";
import { describeMachine } from "../machine.ts";
import { ChaosCluster, type ChaosRound } from "./cluster.ts";
import { Dice } from "./dice.ts";
import { SmallDisk } from "./disk.ts";
import { FAULT_KINDS, type FaultKind, type Ground, prepare } from "./faults.ts";
import { type ChaosReport, faultFigures, type FaultTimes, type Violation } from "./report.ts";
import { readResult, WORLD } from "./values.ts";

/** Values of a rank's tensor: 64 KiB. */
const VALUES = 16 * 1024;
/** After so long without what is waited for, it counts as a hang, in milliseconds. */
const HANG_MS = 90_000;
/** Two faults at once. */
const TWO = "two at once";
/** The mass of a round with every rank. */
const WHOLE = 2 ** WORLD - 1;

/** What a run is told. */
export interface ChaosPlan {
  readonly seed: number;
  /** How long new faults come, in milliseconds. */
  readonly durationMs: number;
  /** Told of each fault. */
  readonly tell: (line: string) => void;
  /** Ends the run before its time. */
  readonly signal: AbortSignal;
}

/** Waits for rounds. */
class Watch {
  readonly #waiting = new Set<(round: ChaosRound) => void>();

  /** A round is over. */
  hear(round: ChaosRound): void {
    for (const look of [...this.#waiting]) look(round);
  }

  /** When a round that fits is over, in milliseconds since 1970; undefined when that takes too long. */
  async next(fits: (round: ChaosRound) => boolean): Promise<number | undefined> {
    const { promise, resolve } = Promise.withResolvers<number | undefined>();
    const look = (round: ChaosRound) => {
      if (fits(round)) resolve(round.ended);
    };
    const timer = setTimeout(() => resolve(undefined), HANG_MS);
    this.#waiting.add(look);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(look);
    }
  }
}

/** Every kind in some order, again and again. */
function* deck(dice: Dice, kinds: readonly FaultKind[]): Generator<FaultKind, never> {
  for (;;) yield* dice.shuffled(kinds);
}

/**
 * Runs a cluster, breaks it, and judges what came of it; nothing of it is left afterwards.
 *
 * @throws The signal's reason, when it ends the run.
 */
export async function chaos(plan: ChaosPlan): Promise<ChaosReport> {
  const { signal } = plan;
  await using disk = await SmallDisk.make();
  const violations: Violation[] = [];
  const watch = new Watch();
  await using cluster = new ChaosCluster(`${disk.path}/state`, VALUES, {
    round: (round) => watch.hear(round),
    violation: (kind, what) => violations.push({ kind, what }),
  });
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
  });
  return await Promise.race([run(plan, { disk, cluster, watch, violations }), stopped]);
}

/** What a run works with. */
interface Stage {
  readonly disk: SmallDisk;
  readonly cluster: ChaosCluster;
  readonly watch: Watch;
  readonly violations: Violation[];
}

async function run({ seed, durationMs, tell }: ChaosPlan, stage: Stage): Promise<ChaosReport> {
  const { disk, cluster, watch, violations } = stage;
  const dice = new Dice(seed);
  const times: FaultTimes[] = [];
  let badInputs = 0;
  const hang = (what: string) => {
    const text = `${what}: nothing within ${HANG_MS} ms; the logs end with\n${cluster.logs}`;
    violations.push({ kind: "hang", what: text });
  };
  const ground: Ground = { cluster, disk, dice, called: (strangers) => badInputs += strangers };
  const skipped = disk.plain === undefined
    ? []
    : [`disk full: no file system could be mounted for it (${disk.plain})`];
  const kinds = FAULT_KINDS.filter((kind) => kind !== "disk full" || disk.plain === undefined);

  if (await watch.next(({ mass }) => mass === WHOLE) === undefined) hang("the first round");
  const started = Date.now();
  const before = cluster.rounds;
  const faults = deck(dice, kinds);
  while (Date.now() - started < durationMs && violations.length === 0) {
    const chosen = dice.upTo(4) === 0
      ? [faults.next().value, faults.next().value]
      : [faults.next().value];
    const acts = chosen.map((kind) => prepare(kind, ground));
    const restMs = 200 + dice.upTo(800);
    const name = chosen.join(" and ");
    const begun = Date.now();
    const next = watch.next((round) => round.begun >= begun);
    await Promise.all(acts.map((act) => act()));
    const done = Date.now();
    const whole = await watch.next((round) => round.begun >= done && round.mass === WHOLE);
    const first = await next;
    if (first === undefined) hang(`the round after ${name}`);
    else if (whole === undefined) hang(`a round of all ranks after ${name}`);
    else {
      const kind = chosen.length === 1 ? chosen[0]! : TWO;
      times.push({ kind, nextMs: first - begun, wholeMs: whole - done });
      tell(`${name}: next round after ${first - begun} ms, all ranks after ${whole - done} ms`);
    }
    await new Promise((resolve) => setTimeout(resolve, restMs));
  }
  const seconds = (Date.now() - started) / 1000;
  const rounds = cluster.rounds - before;
  const late = await cluster.finish();
  if (late.length > 0) hang(`the end of ${late.join(", ")}`);
  for (const what of await checkCheckpoints(`${disk.path}/state`, cluster.acknowledged)) {
    violations.push({ kind: "lost checkpoint", what });
  }
  const count = (kind: Violation["kind"]) => violations.filter((one) => one.kind === kind).length;
  return {
    seed,
    seconds,
    machine: describeMachine(),
    rounds,
    rounds_per_second: rounds / seconds,
    faults: faultFigures([...FAULT_KINDS, TWO], times),
    skipped,
    wrong_results: count("wrong result"),
    hangs: count("hang"),
    lost_checkpoints: count("lost checkpoint"),
    crashes: count("crash"),
    acknowledged_checkpoints: cluster.acknowledged.length,
    failed_writes: cluster.failedWrites,
    bad_inputs: badInputs,
    restarts: {
      controller: cluster.restarts("controller"),
      relays: cluster.restarts("relay"),
      ranks: cluster.restarts("rank"),
    },
    comebacks: cluster.outs,
    violations,
  };
}

/** What is wrong with the checkpoints that are left: the newest must be there, and hold a result. */
async function checkCheckpoints(
  state: string,
  acknowledged: readonly number[],
): Promise<string[]> {
  const newest = Math.max(0, ...acknowledged);
  if (newest === 0) return ["no checkpoint was written at all"];
  try {
    const { step, tensors } = await loadCheckpoint(`${state}/checkpoints`);
    if (step < newest) return [`the newest good checkpoint is of step ${step}, not of ${newest}`];
    // A session that was killed leaves steps that the next one takes again.
    using ledger = new DatabaseSync(`${state}/ledger.sqlite`, { readOnly: true });
    const row = ledger.prepare(
      "SELECT mass FROM rounds WHERE step = ? ORDER BY session DESC LIMIT 1",
    ).get(step);
    if (row === undefined) return [];
    const content = readResult(tensors[0]!.data, Number(row["mass"]));
    return typeof content === "string" ? [`the checkpoint of step ${step}: ${content}`] : [];
  } catch (error) {
    return [`reading the last checkpoint: ${error instanceof Error ? error.message : error}`];
  }
}
