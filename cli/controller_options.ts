/**
 * The controller's options.
 *
 * @module
 */

import type { KeySource, KeySources } from "../delta/keys.ts";
import { MAX_WORLD_SIZE } from "../wire/limits.ts";
import { type CommonOptions, commonTable, durationOption, finishCommon } from "./common_options.ts";
import { type ReadEnvironment, resolveOptions } from "./options.ts";
import { finishPasses, type PassPolicyChoice, passTable } from "./pass_options.ts";
import { OPERATOR_TOKEN_VARIABLE, readOperatorToken } from "./operator_token.ts";
import type { Program } from "./program.ts";
import { expectPrivate } from "./security_options.ts";
import { option, optionalOption, UsageError } from "./spec.ts";
import { finishState, type KeptState, stateTable } from "./state_options.ts";
import {
  byteSize,
  choice,
  formatBytes,
  formatHostPort,
  type HostPort,
  hostPort,
  hostPortList,
  text,
  wholeNumber,
} from "./values.ts";

/** The variables that hold the fleet's keys themselves. */
export const FLEET_KEY_VARIABLES = {
  current: "AXIOM_FLEET_KEY",
  previous: "AXIOM_FLEET_KEY_PREVIOUS",
} as const;

/** To whom a controller publishes deltas, and how. */
export interface DeltaOptions {
  /** host:port of each peer. */
  readonly peers: readonly string[];
  /** Where the fleet's keys come from. Never to be printed or logged. */
  readonly keys: KeySources;
  /** Publish every n-th Model round. */
  readonly every: number;
  /** Whether replicas may ask for snapshots. */
  readonly snapshots: boolean;
}

/** Everything that a controller is told. */
export interface ControllerOptions extends CommonOptions {
  /** The fewest ranks with which a round closes. */
  readonly minRanks: number;
  /** How long a session with too few ranks waits for more; 0: not at all. */
  readonly returnDeadlineMs: number;
  /** Where to serve HTTP; undefined: nowhere. */
  readonly http: HostPort | undefined;
  /** The operator's token; undefined: nobody may act over HTTP. Never to be printed or logged. */
  readonly operatorToken: string | undefined;
  /** A directory for gradient blocks; undefined: in memory. */
  readonly passesStore: string | undefined;
  /** Most bytes of gradient blocks kept. */
  readonly passesBytes: number;
  /** What passes do about contributors who are not trusted. */
  readonly passPolicy: PassPolicyChoice;
  /** What outlives a round; undefined: nothing. */
  readonly kept: KeptState | undefined;
  /** Undefined when there are no peers. */
  readonly delta: DeltaOptions | undefined;
}

const table = {
  joinDeadline: durationOption("how long to wait for the relays of all ranks to connect", "5m"),
  minRanks: option({
    value: "N",
    help:
      "the fewest ranks with which a round closes; below it the session waits for ranks to come back",
    schema: wholeNumber(1, MAX_WORLD_SIZE),
    fallback: "1",
  }),
  returnDeadline: durationOption(
    "how long a session with too few ranks waits for more to come back; 0s: not at all",
    "1m",
    0,
  ),
  ...stateTable,
  ...commonTable,
  worldSize: option({
    ...commonTable.worldSize,
    help: "the number of ranks on all hosts together; 0 with --http, for federated passes alone",
    schema: wholeNumber(0, MAX_WORLD_SIZE),
  }),
  http: optionalOption({
    value: "HOST:PORT",
    help:
      "serve HTTP there: the status page, state, metrics, health, and the intake of federated passes; " +
      "off unless given; port 0 takes a free one, printed as `http HOST:PORT`",
    schema: hostPort({ port0: true }),
    show: formatHostPort,
  }),
  passesStore: optionalOption({
    value: "DIR",
    help: "a directory that keeps gradient blocks; in memory when not given",
    schema: text("the name of a directory"),
  }),
  passesBytes: option({
    value: "BYTES",
    help: "the most bytes of gradient blocks kept",
    schema: byteSize(1024, Number.MAX_SAFE_INTEGER),
    show: formatBytes,
    fallback: "1GiB",
  }),
  operatorTokenFile: optionalOption({
    value: "FILE",
    help:
      `a file that holds the token for acting from the status page, read-only without one; instead of ${OPERATOR_TOKEN_VARIABLE}`,
    schema: text("the name of a file"),
  }),
  ...passTable,
  deltaPeers: optionalOption({
    value: "LIST",
    help: "HOST:PORT of each DWE peer that gets the changes of the consensus, with commas",
    schema: hostPortList(),
    show: (peers: readonly HostPort[]) => peers.map(formatHostPort).join(","),
    env: "AXIOM_DWE_PEERS",
  }),
  fleetKeyFile: optionalOption({
    value: "FILE",
    help:
      `a file that holds the fleet key, read again when it changes; instead of ${FLEET_KEY_VARIABLES.current}`,
    schema: text("the name of a file"),
  }),
  fleetKeyPreviousFile: optionalOption({
    value: "FILE",
    help:
      `a file that holds the key before it, during a rotation; instead of ${FLEET_KEY_VARIABLES.previous}`,
    schema: text("the name of a file"),
  }),
  deltaEvery: option({
    value: "N",
    help: "publish the changes of every n-th Model round",
    schema: wholeNumber(1, 1_000_000),
    fallback: "1",
  }),
  deltaSnapshots: option({
    value: "on|off",
    help: "let Tierfold replicas ask for a snapshot; plain DWE peers do not notice",
    schema: choice(["on", "off"]),
    fallback: "on",
  }),
};

function keySource(
  file: string | undefined,
  variable: string,
  flag: string,
  env: ReadEnvironment,
): KeySource {
  const held = env(variable);
  if (file !== undefined && held !== undefined) {
    throw new UsageError([`${variable} and ${flag} are both set; unset one, they may disagree`]);
  }
  return { file, text: held };
}

/** The controller as a program: its options, its help, and how they become {@link ControllerOptions}. */
export const controllerProgram: Program<typeof table, ControllerOptions> = {
  name: "tierfold-controller",
  usage: "deno run controller.ts",
  summary:
    "The root of the tree: folds the frames of all hosts, divides once, sends the result back.",
  examples: [
    [
      "deno run controller.ts --listen 0.0.0.0:7070 --config root.json",
      "for any hosts",
    ],
    ["deno run controller.ts --world-size 4 --log-format json", "on loopback, logs for machines"],
    [
      "deno run controller.ts --world-size 8 --state run1 --resume",
      "from its last checkpoint on",
    ],
    ["deno run controller.ts --world-size 0 --http 127.0.0.1:7080", "federated passes alone"],
  ],
  table,
  finish: (resolution, env) => {
    const { values } = resolution;
    if (values.worldSize === 0 && values.http === undefined) {
      throw new UsageError(["--world-size 0 leaves nothing to do without --http"]);
    }
    if (values.minRanks > Math.max(values.worldSize, 1)) {
      throw new UsageError([
        `--min-ranks: ${values.minRanks} ranks are more than --world-size ${values.worldSize}`,
      ]);
    }
    const common = finishCommon(resolution, env);
    expectPrivate([
      {
        flag: "--listen",
        place: common.tls === undefined ? values.listen : undefined,
        remedy: "give --tls-cert, --tls-key and --tls-ca",
      },
      { flag: "--http", place: values.http },
    ], values.allowPlain);
    const { current, previous } = FLEET_KEY_VARIABLES;
    const keys = {
      current: keySource(values.fleetKeyFile, current, "--fleet-key-file", env),
      previous: keySource(
        values.fleetKeyPreviousFile,
        previous,
        "--fleet-key-previous-file",
        env,
      ),
    };
    const peers = values.deltaPeers ?? [];
    return {
      ...common,
      minRanks: values.minRanks,
      returnDeadlineMs: values.returnDeadline,
      http: values.http,
      operatorToken: readOperatorToken(values.operatorTokenFile, env),
      passesStore: values.passesStore,
      passesBytes: values.passesBytes,
      passPolicy: finishPasses(values, values.http !== undefined),
      kept: finishState(values),
      delta: peers.length === 0 ? undefined : {
        peers: peers.map(formatHostPort),
        keys,
        every: values.deltaEvery,
        snapshots: values.deltaSnapshots === "on",
      },
    };
  },
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
