/**
 * The command line: flags in, help out. commander does the parsing and the layout; strictness about
 * repeated flags and secrets is ours.
 *
 * @module
 */

import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { envOf, flagOf, type OptionTable, UsageError } from "./spec.ts";

/** The shells that --completion knows. */
export const SHELLS = ["bash", "zsh", "fish"] as const;

/** What stood on a command line. */
export interface Flags {
  /** Raw values by option key: text, or true and false for yes-or-no options. */
  readonly values: Readonly<Record<string, string | boolean>>;
  /** The argument of --config. */
  readonly config: string | undefined;
  readonly help: boolean;
  readonly version: boolean;
  readonly printConfig: boolean;
  readonly printSchema: boolean;
  /** The argument of --completion. */
  readonly completion: string | undefined;
}

/** A flag as help and completions show it. */
export interface ShownFlag {
  /** With its dashes. */
  readonly flag: string;
  /** What stands for its value, such as `FILE`; null where it takes none. */
  readonly value: string | null;
  readonly help: string;
}

/** What every program has besides its options: what prints something and ends it, and the config file. */
const OWN_FLAGS: readonly ShownFlag[] = [
  {
    flag: "--config",
    value: "FILE",
    help: "a JSON file of options by their keys, such as worldSize (environment: TIERFOLD_CONFIG)",
  },
  {
    flag: "--print-config",
    value: null,
    help: "print every option's value and source as JSON, and end",
  },
  { flag: "--print-schema", value: null, help: "print the config file's JSON Schema, and end" },
  {
    flag: "--completion",
    value: SHELLS.join("|"),
    help: "print a script by which that shell completes options, and end",
  },
  { flag: "--help", value: null, help: "print this help, and end" },
  {
    flag: "--version",
    value: null,
    help: "print version, commit and licence, and end",
  },
];

/** All flags of a program, in the order of its help. */
export function shownFlags(table: OptionTable): ShownFlag[] {
  const options = Object.entries(table).map(([key, spec]): ShownFlag => {
    const more = typeof spec.fallback === "string" ? [`default: ${spec.fallback}`] : [];
    more.push(`environment: ${envOf(key, spec)}`);
    return { flag: flagOf(key), value: spec.value, help: `${spec.help} (${more.join("; ")})` };
  });
  return [...options, ...OWN_FLAGS];
}

/** What the help says around the options. */
export interface HelpText {
  /** How the program is started, such as `deno run relay.ts`. */
  readonly usage: string;
  /** What it is, in a sentence. */
  readonly summary: string;
  /** Command lines with what they do. */
  readonly examples: readonly (readonly [command: string, what: string])[];
  /** What its exit codes mean, where that is not what those of a session mean. */
  readonly exitCodes?: string;
}

/**
 * Reads a command line.
 *
 * @throws {UsageError} on an unknown flag, a flag without its value or given twice, or a bare word.
 */
export function parseFlags(table: OptionTable, args: readonly string[]): Flags {
  // commander's message for an unknown flag repeats it with its value, which here is a secret.
  if (args.some((arg) => arg === "--salt" || arg.startsWith("--salt="))) {
    throw new UsageError([
      "--salt: there is no such option, since anyone on this host can read a command line; " +
      "set TIERFOLD_SALT or name a file with --salt-file",
    ]);
  }
  const command = build(table, { usage: "", summary: "", examples: [] });
  try {
    command.parse([...args], { from: "user" });
  } catch (error) {
    if (error instanceof CommanderError) throw new UsageError([reword(error.message)]);
    throw error;
  }
  const { config, help, version, printConfig, printSchema, completion, ...values } = command.opts();
  return {
    values: Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)),
    config: config as string | undefined,
    help: help === true,
    version: version === true,
    printConfig: printConfig === true,
    printSchema: printSchema === true,
    completion: completion as string | undefined,
  };
}

/** The help page of a program, {@link Flags.help}. */
export function renderHelp(table: OptionTable, text: HelpText): string {
  const command = build(table, text);
  let page = "";
  command.configureOutput({ writeOut: (part) => page += part });
  command.outputHelp();
  return page;
}

function reword(message: string): string {
  return message.replace(/^error: /, "").replaceAll("\n", " ");
}

function build(table: OptionTable, text: HelpText): Command {
  const command = new Command(text.usage)
    .usage("[options]")
    .description(text.summary)
    .helpOption(false)
    .allowExcessArguments(false)
    .exitOverride()
    // commander asks the environment about colours and the terminal about widths unless told.
    .configureOutput({
      writeOut: () => {},
      writeErr: () => {},
      getOutHasColors: () => false,
      getErrHasColors: () => false,
      getOutHelpWidth: () => 100,
      getErrHelpWidth: () => 100,
    });
  for (const { flag, value, help } of shownFlags(table)) {
    if (value === null) command.addOption(new Option(flag, help));
    else command.addOption(new Option(`${flag} <${value}>`, help).argParser(once));
  }
  for (const [key, spec] of Object.entries(table)) {
    if (spec.value !== null) continue;
    command.addOption(new Option(flagOf(key).replace("--", "--no-")).hideHelp());
  }
  const width = Math.max(0, ...text.examples.map(([line]) => line.length));
  const examples = text.examples.map(([line, what]) => `  ${line.padEnd(width)}  # ${what}\n`);
  command.addHelpText("after", `\nExamples:\n${examples.join("")}\n${SOURCES}`);
  command.addHelpText("after", `\nExit codes: ${text.exitCodes ?? SESSION_CODES}`);
  return command;
}

const SOURCES =
  `A flag counts before its environment variable, that before the config file, that before what
torchrun, mpirun or srun says (seen with --allow-env), that before the default. The session
salt, 16 bytes as 32 hex digits, comes from TIERFOLD_SALT or from the file named by --salt-file.`;

const SESSION_CODES =
  `0 the session ended well; 1 it failed here; 2 wrong options; 3 it failed at a rank
or peer; 130 and 143 ended by SIGINT and SIGTERM.`;

function once(value: string, previous: unknown): string {
  if (value.startsWith("--")) throw new InvalidArgumentError("Its value is missing.");
  if (previous !== undefined) throw new InvalidArgumentError("It is given more than once.");
  return value;
}
