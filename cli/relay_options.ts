/**
 * The relay's options.
 *
 * @module
 */

import { NONFINITE_POLICIES, type NonFinitePolicy } from "../fold/nonfinite.ts";
import { MAX_HOST_NAME_BYTES, MAX_WORLD_SIZE } from "../wire/limits.ts";
import type { Manifest } from "../wire/manifest.ts";
import { type CommonOptions, commonTable, durationOption, finishCommon } from "./common_options.ts";
import { type ReadEnvironment, resolveOptions } from "./options.ts";
import { manifestOption, readManifest } from "./manifest.ts";
import type { Program } from "./program.ts";
import {
  launchedController,
  launchedHost,
  launchedRanks,
  launchedWorldSize,
} from "./relay_launch.ts";
import { expectPrivate } from "./security_options.ts";
import { option, optionalOption, type OptionValues, UsageError } from "./spec.ts";
import {
  choice,
  formatHostPort,
  formatRanks,
  type HostPort,
  hostPort,
  rankSet,
  text,
} from "./values.ts";

/** Everything that a relay is told. */
export interface RelayOptions extends CommonOptions {
  /** This host's name, for messages and the status. */
  readonly host: string;
  /** The ranks of this host, ascending. */
  readonly ranks: readonly number[];
  /** Where the controller listens. */
  readonly controller: HostPort;
  /** How long to try to reach the controller. */
  readonly connectDeadlineMs: number;
  /** How long to try to reach a controller that was lost; 0: not at all. */
  readonly reconnectDeadlineMs: number;
  /** How long to wait for a rank to come back when the last one has died. */
  readonly returnDeadlineMs: number;
  /** What becomes of NaN and infinities in a rank's frame. */
  readonly nonfinite: NonFinitePolicy;
  /** Names for the tensors, for messages. */
  readonly manifest: Manifest | undefined;
  /** Where to serve HTTP; undefined: nowhere. */
  readonly http: HostPort | undefined;
}

const table = {
  host: option({
    value: "NAME",
    help:
      "this host's name, as logs and the status show it (default: the system's, with --allow-sys=hostname)",
    schema: text("a host name", MAX_HOST_NAME_BYTES),
    launched: (env) => hostname() === undefined ? launchedHost(env) : undefined,
    fallback: hostname,
  }),
  ranks: option({
    value: "RANKS",
    help: "the ranks of this host: 0-3 or 0,1,5",
    schema: rankSet(MAX_WORLD_SIZE),
    show: formatRanks,
    launched: launchedRanks,
  }),
  controller: option({
    value: "HOST:PORT",
    help: "where the controller listens",
    schema: hostPort(),
    show: formatHostPort,
    launched: launchedController,
  }),
  connectDeadline: durationOption("how long to try to reach the controller", "1m"),
  reconnectDeadline: durationOption(
    "how long to try to reach the controller again once it was lost, while the ranks wait; 0s: end at once",
    "1m",
    0,
  ),
  returnDeadline: durationOption(
    "how long to wait for a rank to come back when the last one has died; 0s: not at all",
    "0s",
    0,
  ),
  nonfinite: option({
    value: "POLICY",
    help:
      "a rank's NaN and infinities: refuse (the rank is out), zero (each counts as 0) or allow (not looked for)",
    schema: choice(NONFINITE_POLICIES),
    fallback: "refuse",
  }),
  manifest: manifestOption,
  joinDeadline: durationOption("how long to wait for this host's ranks to connect", "5m"),
  http: optionalOption({
    value: "HOST:PORT",
    help: "serve HTTP there for those who watch: /healthz, /readyz, /metrics, /state.json; off " +
      "unless given; port 0 takes a free one, printed as `http HOST:PORT`",
    schema: hostPort({ port0: true }),
    show: formatHostPort,
  }),
  ...commonTable,
};

/** The relay as a program: its options, its help, and how they become {@link RelayOptions}. */
export const relayProgram: Program<typeof table, RelayOptions> = {
  name: "tierfold-relay",
  usage: "deno run relay.ts",
  summary: "The relay of one host: folds the frames of its ranks and sends one frame on.",
  examples: [
    [
      "deno run relay.ts --ranks 0-3 --world-size 8 --controller 10.0.0.1:7070",
      "the first of two hosts",
    ],
    ["deno run relay.ts --config relay.json --print-config", "what it would run with"],
  ],
  table,
  finish: (resolution, env) => {
    const { values, sources } = resolution;
    checkRanks(values);
    expectPrivate([
      { flag: "--listen", place: values.listen },
      { flag: "--http", place: values.http },
    ], values.allowPlain);
    if (sources.ranks === "launcher") checkWorld(values, env);
    return {
      ...finishCommon(resolution, env),
      host: values.host,
      ranks: values.ranks,
      controller: values.controller,
      connectDeadlineMs: values.connectDeadline,
      reconnectDeadlineMs: values.reconnectDeadline,
      returnDeadlineMs: values.returnDeadline,
      nonfinite: values.nonfinite,
      manifest: readManifest(values.manifest),
      http: values.http,
    };
  },
};

/**
 * Reads a relay's options.
 *
 * @param args The command line after the program's name.
 * @throws {UsageError} with every problem found.
 */
export function parseRelayOptions(args: readonly string[], env: ReadEnvironment): RelayOptions {
  return relayProgram.finish(resolveOptions(table, args, env), env);
}

function checkRanks({ ranks, worldSize }: OptionValues<typeof table>): void {
  const highest = ranks.at(-1) ?? 0;
  if (highest < worldSize) return;
  throw new UsageError([
    `--ranks: rank ${highest} is not below --world-size ${worldSize}; ` +
    `ranks are counted from 0 over all hosts`,
  ]);
}

/** Ranks counted out of a launcher's world are those of no other. */
function checkWorld({ ranks, worldSize }: OptionValues<typeof table>, env: ReadEnvironment): void {
  const launched = launchedWorldSize(env);
  if (launched === undefined || launched.text === `${worldSize}`) return;
  throw new UsageError([
    `--ranks is not given, and ${
      formatRanks(ranks)
    } follows from a world size of ${launched.text} ` +
    `by ${launched.from}, but --world-size is ${worldSize}: name the ranks of this host`,
  ]);
}

/** The system's name for this host; undefined where asking for it is not permitted. */
function hostname(): string | undefined {
  const permission = Deno.permissions.querySync({ name: "sys", kind: "hostname" });
  return permission.state === "granted" ? Deno.hostname() : undefined;
}
