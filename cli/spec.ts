/**
 * What an option is: the type behind a program's table of options, and the names that follow from it.
 *
 * @module
 */

import type { z } from "zod";

/** A value, as text, that a launcher's variables hold, and which ones. */
export interface Launched {
  readonly text: string;
  readonly from: string;
}

/** One option, by all its names. Its key in the table is its key in the config file. */
export interface OptionSpec<T> {
  /** What the help shows for the value, such as `HOST:PORT`; null for a yes-or-no option. */
  readonly value: string | null;
  /** What it does: one line of the help. */
  readonly help: string;
  /** Turns text (or a config file's JSON value) into the option's value. */
  readonly schema: z.ZodType<T>;
  /** How to write a value as the schema takes it, for --print-config. Default: the value as JSON. */
  readonly show?: (value: T) => string;
  /** Finds the value, as text, in what a launcher left in the environment; counts before the default. */
  readonly launched?: (env: (name: string) => string | undefined) => Launched | undefined;
  /** The default, as text, or how to find it; undefined where there is none. */
  readonly fallback?: string | (() => string | undefined);
  /** Whether the program can do without a value. */
  readonly optional?: boolean;
  /** The environment variable, where it is not TIERFOLD_ and the key in capitals. */
  readonly env?: string;
}

/** An option that must come from some source, if only its default. */
export function option<T>(spec: OptionSpec<T>): OptionSpec<T> {
  return spec;
}

/** An option that may stay undefined. */
export function optionalOption<T>(spec: OptionSpec<T>): OptionSpec<T | undefined> {
  return { ...spec, optional: true } as OptionSpec<T | undefined>;
}

// deno-lint-ignore no-explicit-any -- a table mixes value types; OptionValues keeps them apart.
export type OptionTable = Readonly<Record<string, OptionSpec<any>>>;

/** The values of a table's options. */
export type OptionValues<Table extends OptionTable> = {
  readonly [Key in keyof Table]: Table[Key] extends OptionSpec<infer T> ? T : never;
};

/** A wrong command line, environment or config file: the operator's to mend. Exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";

  /** @param problems Each says which option, where it came from, what was expected, what came. */
  constructor(readonly problems: readonly string[]) {
    super(problems.join("\n"));
  }
}

/** The flag of an option: `worldSize` is `--world-size`. */
export function flagOf(key: string): string {
  return `--${key.replace(/[A-Z]/g, (capital) => `-${capital.toLowerCase()}`)}`;
}

/** The environment variable of an option: `worldSize` is `TIERFOLD_WORLD_SIZE`. */
export function envOf(key: string, spec: { readonly env?: string }): string {
  return spec.env ?? `TIERFOLD_${key.replace(/[A-Z]/g, (capital) => `_${capital}`).toUpperCase()}`;
}
