/**
 * The controller's options.
 *
 * @module
 */

import { type CommonOptions, commonTable, durationOption, finishCommon } from "./common_options.ts";
import { type ReadEnvironment, resolveOptions } from "./options.ts";
import type { Program } from "./program.ts";

/** Everything that a controller is told. */
export type ControllerOptions = CommonOptions;

const table = {
  joinDeadline: durationOption("how long to wait for the relays of all ranks to connect", "5m"),
  ...commonTable,
};

/** The controller as a program: its options, its help, and how they become {@link ControllerOptions}. */
export const controllerProgram: Program<typeof table, ControllerOptions> = {
  name: "tierfold-controller",
  usage: "deno run controller.ts",
  summary:
    "The root of the tree: folds the frames of all hosts, divides once, sends the result back.",
  examples: [
    ["deno run controller.ts --listen 0.0.0.0:7070 --world-size 8", "for eight ranks on any hosts"],
    ["deno run controller.ts --world-size 4 --log-format json", "on loopback, logs for machines"],
  ],
  table,
  finish: (resolution, env) => finishCommon(resolution, env),
};

/**
 * Reads a controller's options.
 *
 * @param args The command line after the program's name.
 * @throws {UsageError} with every problem found.
 */
export function parseControllerOptions(
  args: readonly string[],
  env: ReadEnvironment,
): ControllerOptions {
  return controllerProgram.finish(resolveOptions(table, args, env), env);
}
