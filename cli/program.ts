/**
 * What the entry points have in common: from the command line to the exit code.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { TransportError } from "../transport/connection.ts";
import { InvariantError, WireError } from "../wire/errors.ts";
import { renderCompletion } from "./completion.ts";
import { configSchema } from "./config_schema.ts";
import { type HelpText, parseFlags, renderHelp } from "./flags.ts";
import { startLogging } from "./log.ts";
import type { CommonOptions } from "./common_options.ts";
import { readEnvironment } from "./environment.ts";
import { type ReadEnvironment, type Resolution, resolveFlags } from "./options.ts";
import { SALT_VARIABLE } from "./salt.ts";
import { envOf, flagOf, type OptionTable, UsageError } from "./spec.ts";
import { formatHostPort, type HostPort } from "./values.ts";
import { versionLine } from "./version.ts";

/** How a program ends, as its caller sees it. */
export const ExitCode = {
  /** The session ended well. */
  ok: 0,
  /** It failed here, or something unexpected happened. */
  failed: 1,
  /** Options, environment or config file are wrong. */
  usage: 2,
  /** A peer or rank failed, and the session could not complete. */
  peer: 3,
  /** Ended by SIGINT. */
  interrupted: 130,
  /** Ended by SIGTERM. */
  terminated: 143,
} as const;

/** The session cannot complete because of a peer or rank. Exit code 3. */
export class PeerFailure extends Error {
  override readonly name = "PeerFailure";
}

/** A program: its options and what it says of itself. */
export interface Program<Table extends OptionTable, Options> extends HelpText {
  /** The name in --version. */
  readonly name: string;
  readonly table: Table;
  /** Keys of other programs, which a config file may hold as well. */
  readonly passedOver?: readonly string[];
  /**
   * Makes the program's options from single values: checks that need several, reads secrets.
   *
   * @throws {UsageError} when they do not fit together.
   */
  readonly finish: (resolution: Resolution<Table>, env: ReadEnvironment) => Options;
}

/** How long a program may take to end after the first signal, in milliseconds. */
const STOP_MS = 5_000;

/**
 * Runs a program and ends the process: reads the options, answers --help and the like, starts logging,
 * turns SIGINT and SIGTERM into an abort, and the outcome into an {@link ExitCode}.
 *
 * @param main Runs until the session is over, or until the signal aborts. What it throws is logged.
 */
export async function runProgram<Table extends OptionTable, Options extends CommonOptions>(
  program: Program<Table, Options>,
  main: (options: Options, signal: AbortSignal) => Promise<void>,
): Promise<never> {
  const { options, launched } = readOptions(program, Deno.args, readEnvironment);
  const logging = startLogging(options.log);
  const log = getLogger(["tierfold", "cli"]);
  for (const found of launched) log.info("from the launcher: {found}", { found });
  const stop = new AbortController();
  let stopped: number | undefined;
  onSignals((signal) => {
    const code = signal === "SIGINT" ? ExitCode.interrupted : ExitCode.terminated;
    if (stopped !== undefined) Deno.exit(code);
    stopped = code;
    log.info("{signal}: ending the session; once more ends the process at once", { signal });
    Deno.unrefTimer(setTimeout(() => {
      log.error("the session did not end within {ms} ms: ending the process", { ms: STOP_MS });
      Deno.exit(code);
    }, STOP_MS));
    stop.abort(new DOMException(`ended by ${signal}`, "AbortError"));
  });
  let code: number = ExitCode.ok;
  try {
    await main(options, stop.signal);
  } catch (error) {
    if (stopped === undefined) code = report(error);
  }
  logging[Symbol.dispose]();
  Deno.exit(stopped ?? code);
}

/** Says why a program failed, and gives its exit code. */
function report(error: unknown): number {
  const log = getLogger(["tierfold", "cli"]);
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof UsageError) {
    for (const problem of error.problems) log.error("{problem}", { problem });
    return ExitCode.usage;
  }
  if (isPeerFailure(error)) {
    log.error("the session failed: {message}", { message });
    return ExitCode.peer;
  }
  log.error("the session failed here: {message}", { message });
  if (error instanceof Error) {
    // Of use only to us: where our own promise broke.
    const level = error instanceof InvariantError ? "error" : "debug";
    for (const line of error.stack?.split("\n") ?? []) log[level]("{line}", { line });
  }
  return ExitCode.failed;
}

/** Whether a peer is to blame: the connection with it, or what it sent. */
function isPeerFailure(error: unknown): boolean {
  return error instanceof PeerFailure || error instanceof WireError ||
    error instanceof TransportError && error.code !== "address";
}

/** Gives a program's options with what a launcher said of them, or answers what was asked and ends the process. */
export function readOptions<Table extends OptionTable, Options>(
  program: Program<Table, Options>,
  args: readonly string[],
  env: ReadEnvironment,
): { options: Options; launched: readonly string[] } {
  try {
    const flags = parseFlags(program.table, args);
    if (flags.help) answer(renderHelp(program.table, program));
    if (flags.version) answer(versionLine(program.name));
    if (flags.completion !== undefined) answer(renderCompletion(program, flags.completion));
    if (flags.printSchema) answer(`${JSON.stringify(configSchema(program), null, 2)}\n`);
    const resolution = resolveFlags(program.table, flags, env, program.passedOver);
    if (flags.printConfig) {
      answer(`${JSON.stringify(configReport(program.table, resolution, env), null, 2)}\n`);
    }
    return { options: program.finish(resolution, env), launched: resolution.launched };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const lines = error.problems.map((problem) => `${program.name}: ${problem}\n`);
    writeAll(Deno.stderr, `${lines.join("")}Try ${program.usage} --help\n`);
    Deno.exit(ExitCode.usage);
  }
}

/** Prints a text on standard output and ends the process. */
export function answerWith(code: number, text: string): never {
  writeAll(Deno.stdout, text);
  Deno.exit(code);
}

function answer(text: string): never {
  answerWith(ExitCode.ok, text);
}

/** What --print-config says of one option. */
export interface ReportedOption {
  /** The value as the option takes it; null where there is none. */
  readonly value: unknown;
  readonly source: string;
  readonly flag: string;
  readonly environment: string;
}

/** What --print-config prints: every option with its value and source; of the salt only where it is. */
export function configReport<Table extends OptionTable>(
  table: Table,
  resolution: Resolution<Table>,
  env: ReadEnvironment,
): { config: string | null; options: Record<string, ReportedOption>; salt: string } {
  const options: Record<string, ReportedOption> = {};
  for (const [key, spec] of Object.entries(table)) {
    const value: unknown = resolution.values[key];
    options[key] = {
      value: value === undefined ? null : spec.show?.(value) ?? value,
      source: resolution.sources[key] ?? "none",
      flag: flagOf(key),
      environment: envOf(key, spec),
    };
  }
  const inFile = options.saltFile !== undefined && options.saltFile.value !== null;
  const inEnvironment = env(SALT_VARIABLE) !== undefined;
  const salt = inFile && (options.saltFile?.source === "flag" || !inEnvironment)
    ? "from the file in saltFile"
    : inEnvironment
    ? `from ${SALT_VARIABLE}`
    : "missing";
  return { config: resolution.configFile ?? null, options, salt };
}

/** Prints the line by which scripts learn the address, `listening HOST:PORT`, on standard output. */
export function printListening(address: HostPort): void {
  writeAll(Deno.stdout, `listening ${formatHostPort(address)}\n`);
}

/** Prints the line by which scripts learn where HTTP is served, `http HOST:PORT`. */
export function printHttp(address: HostPort): void {
  writeAll(Deno.stdout, `http ${formatHostPort(address)}\n`);
}

function onSignals(listener: (signal: "SIGINT" | "SIGTERM") => void): void {
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    try {
      Deno.addSignalListener(signal, () => listener(signal));
    } catch (error) {
      // Windows knows SIGINT only.
      if (!(error instanceof TypeError)) throw error;
    }
  }
}

function writeAll(stream: { writeSync(bytes: Uint8Array): number }, text: string): void {
  let rest = new TextEncoder().encode(text);
  while (rest.length > 0) rest = rest.subarray(stream.writeSync(rest));
}
