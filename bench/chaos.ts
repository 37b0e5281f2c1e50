/**
 * `deno task chaos`: a real cluster under faults, every result checked to the last bit.
 *
 *     deno task chaos [--minutes N] [--seed N] [--json FILE]
 *
 * A controller with a state directory, two relays and four ranks run as processes. Ranks and relays and
 * the controller are killed, ended and stopped, connections are cut, strangers knock, the disk fills up.
 * Ends with exit code 1 when a result was wrong, something hung, a checkpoint that was said to be on the
 * disk was lost, or a process crashed. As root it mounts a small tmpfs for the disk that fills up.
 *
 * @module
 */
import { Command, InvalidArgumentError } from "commander";
import { asReport, type ChaosReport, exitCode } from "./chaos/report.ts";
import { chaos } from "./chaos/run.ts";

/** Longest run: counts stay exact in f32. */
const MAX_MINUTES = 60;

/** Signals that end it early, with the exit codes that shells give them. */
const SIGNALS = [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]] as const;

interface Options {
  readonly minutes: number;
  readonly seed: number;
  readonly json?: string;
}

function within(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text !== "" && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`Expected a number from ${least} to ${most}.`);
  };
}

async function main(args: readonly string[]): Promise<number> {
  const { minutes, seed, json } = new Command("deno task chaos")
    .description("Breaks a real cluster in every way it knows, and checks every result.")
    .option("--minutes <N>", "how long new faults come", within(0.05, MAX_MINUTES), 5)
    .option(
      "--seed <N>",
      "decides which faults come in which order; a random one when not given",
      (text) => Math.floor(within(0, 2 ** 31 - 1)(text)),
      crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1,
    )
    .option("--json <FILE>", "a file for the figures")
    .allowExcessArguments(false)
    .configureOutput({ getOutHasColors: () => false, getErrHasColors: () => false })
    .parse(args, { from: "user" })
    .opts<Options>();
  console.log(`seed ${seed}: deno task chaos --minutes ${minutes} --seed ${seed} replays it`);
  const stop = new AbortController();
  let code: number | undefined;
  for (const [signal, ended] of SIGNALS) {
    Deno.addSignalListener(signal, () => {
      code = ended;
      stop.abort(new Error(`told to by ${signal}`));
    });
  }
  let report: ChaosReport;
  try {
    report = await chaos({
      seed,
      durationMs: minutes * 60_000,
      tell: (line) => console.log(`  ${line}`),
      signal: stop.signal,
    });
  } catch (error) {
    if (code === undefined) throw error;
    console.error(`chaos: ended early: ${(error as Error).message}`);
    return code;
  }
  console.log(`\n${asReport(report)}`);
  if (json !== undefined) await Deno.writeTextFile(json, JSON.stringify(report, null, 1) + "\n");
  return exitCode(report);
}

if (import.meta.main) Deno.exit(await main(Deno.args));
