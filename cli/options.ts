/**
 * Options from five sources, with one schema: flag, then environment variable, then config file, then
 * what the launcher of this process says, then default.
 *
 * A program's options are a table of {@link OptionSpec}. From it come the flags, the names of the
 * environment variables and config keys, the help, the checks and the types; see
 * relay_options.ts for one. Everything unknown or unfit is refused, all of it at once.
 *
 * @module
 */

import { type Flags, parseFlags } from "./flags.ts";
import { LaunchError } from "./launchers.ts";
import {
  envOf,
  flagOf,
  type OptionSpec,
  type OptionTable,
  type OptionValues,
  UsageError,
} from "./spec.ts";

/** Reads an environment variable; undefined also where reading it is not permitted. */
export type ReadEnvironment = (name: string) => string | undefined;

/** Where a value came from. */
export type OptionSource = "flag" | "environment" | "config file" | "launcher" | "default" | "none";

/** What the command line asks for. */
export interface Resolution<Table extends OptionTable> {
  readonly values: OptionValues<Table>;
  readonly sources: Readonly<Record<keyof Table, OptionSource>>;
  /** What the launcher's variables say, in words: `--world-size 4 by WORLD_SIZE (torchrun)`. */
  readonly launched: readonly string[];
  /** The config file that was read. */
  readonly configFile: string | undefined;
}

/**
 * Finds each option's value.
 *
 * @param args The command line, without help, version and print-config.
 * @throws {UsageError} with every problem found.
 */
export function resolveOptions<Table extends OptionTable>(
  table: Table,
  args: readonly string[],
  env: ReadEnvironment,
): Resolution<Table> {
  const flags = parseFlags(table, args);
  return resolveFlags(table, flags, env);
}

/**
 * {@link resolveOptions} over flags that are parsed already.
 *
 * @param passedOver Keys of a config file that are another program's.
 */
export function resolveFlags<Table extends OptionTable>(
  table: Table,
  flags: Flags,
  env: ReadEnvironment,
  passedOver: readonly string[] = [],
): Resolution<Table> {
  const problems: string[] = [];
  const configFile = flags.config ?? env("TIERFOLD_CONFIG");
  const config = configFile === undefined
    ? {}
    : readConfig(configFile, table, passedOver, problems);
  const values: Record<string, unknown> = {};
  const sources: Record<string, OptionSource> = {};
  const launched: string[] = [];
  for (const [key, spec] of Object.entries(table)) {
    const found = find(key, spec, flags, env, config, configFile) ??
      findLaunched(key, spec, env, problems) ?? findDefault(key, spec);
    if (found === "refused") continue;
    sources[key] = found?.source ?? "none";
    if (found?.source === "launcher") launched.push(`${flagOf(key)} ${found.input} by ${found.by}`);
    if (found === undefined) {
      if (spec.optional !== true) problems.push(missing(key, spec));
      continue;
    }
    const result = spec.schema.safeParse(found.input);
    if (result.success) values[key] = result.data;
    else for (const issue of result.error.issues) problems.push(`${found.where}: ${issue.message}`);
  }
  if (problems.length > 0) throw new UsageError(problems);
  return {
    values: values as OptionValues<Table>,
    sources: sources as Record<keyof Table, OptionSource>,
    launched,
    configFile,
  };
}

interface Found {
  readonly input: unknown;
  readonly source: OptionSource;
  /** The option and its source, as an error names them. */
  readonly where: string;
  /** Who said so, where a launcher did. */
  readonly by?: string;
}

function find(
  key: string,
  spec: OptionSpec<unknown>,
  flags: Flags,
  env: ReadEnvironment,
  config: Readonly<Record<string, unknown>>,
  configFile: string | undefined,
): Found | undefined {
  const flag = flagOf(key);
  if (Object.hasOwn(flags.values, key)) {
    return { input: flags.values[key], source: "flag", where: flag };
  }
  const variable = envOf(key, spec);
  const set = env(variable);
  if (set !== undefined) {
    return { input: set, source: "environment", where: `${variable} (environment, for ${flag})` };
  }
  if (Object.hasOwn(config, key)) {
    const where = `"${key}" (config file ${configFile}, for ${flag})`;
    return { input: config[key], source: "config file", where };
  }
  return undefined;
}

/** What the launcher says; `refused` when that cannot be used, which then is one of the problems. */
function findLaunched(
  key: string,
  spec: OptionSpec<unknown>,
  env: ReadEnvironment,
  problems: string[],
): Found | "refused" | undefined {
  const flag = flagOf(key);
  try {
    const said = spec.launched?.(env);
    if (said === undefined) return undefined;
    const { text, from } = said;
    return { input: text, source: "launcher", where: `${from} (launcher, for ${flag})`, by: from };
  } catch (error) {
    if (!(error instanceof LaunchError)) throw error;
    problems.push(`${flag} is not given, and: ${error.message}`);
    return "refused";
  }
}

function findDefault(key: string, spec: OptionSpec<unknown>): Found | undefined {
  const text = typeof spec.fallback === "function" ? spec.fallback() : spec.fallback;
  if (text === undefined) return undefined;
  return { input: text, source: "default", where: `${flagOf(key)} (its default)` };
}

function missing(key: string, spec: OptionSpec<unknown>): string {
  return `${flagOf(key)} ${spec.value ?? ""}`.trimEnd() +
    ` is needed (or ${envOf(key, spec)}, or "${key}" in the config file): ${spec.help}`;
}

/** The largest config file read, in bytes: far more than any real one. */
const MAX_CONFIG_BYTES = 1 << 20;

function readConfig(
  path: string,
  table: OptionTable,
  passedOver: readonly string[],
  problems: string[],
): Readonly<Record<string, unknown>> {
  let parsed: unknown;
  try {
    const size = Deno.statSync(path).size;
    if (size > MAX_CONFIG_BYTES) {
      problems.push(`config file ${path}: expected at most ${MAX_CONFIG_BYTES} bytes, got ${size}`);
      return {};
    }
    parsed = JSON.parse(Deno.readTextFileSync(path));
  } catch (error) {
    // JSON's own messages quote the text around the fault, which may be a misplaced secret.
    const reason = error instanceof SyntaxError ? "it is not JSON" : describe(error);
    problems.push(`config file ${path}: cannot be read: ${reason}`);
    return {};
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    problems.push(`config file ${path}: expected a JSON object, {"option": value}`);
    return {};
  }
  for (const key of Object.keys(parsed)) {
    // Editors look there for the schema.
    if (key === "$schema" || Object.hasOwn(table, key) || passedOver.includes(key)) continue;
    const hint = key === "salt"
      ? `the salt stands in a file of its own, named by "saltFile"`
      : `known are ${Object.keys(table).join(", ")}`;
    problems.push(`config file ${path}: unknown key ${JSON.stringify(key)}; ${hint}`);
  }
  return parsed as Record<string, unknown>;
}

/** An operating system's refusal in words. */
export function describe(error: unknown): string {
  if (error instanceof Deno.errors.NotFound) return "there is no such file";
  return error instanceof Error ? error.message : String(error);
}
