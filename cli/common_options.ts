/**
 * The options that relay and controller share.
 *
 * @module
 */

import { DEFAULT_FRAME_CEILING, MAX_FRAME_BYTES, MAX_WORLD_SIZE } from "../wire/limits.ts";
import {
  byteSize,
  choice,
  duration,
  formatBytes,
  formatDuration,
  formatHostPort,
  type HostPort,
  hostPort,
  text,
  wholeNumber,
  wholeNumberOrAuto,
} from "./values.ts";
import type { ReadEnvironment, Resolution } from "./options.ts";
import { launchedWorldSize } from "./relay_launch.ts";
import { readSalt } from "./salt.ts";
import { finishIntake, finishTls, securityTable } from "./security_options.ts";
import { option, optionalOption, type OptionSpec, UsageError } from "./spec.ts";
import type { Terms } from "../serve/terms.ts";
import type { GateLimits } from "../transport/gate.ts";
import type { TlsIdentity } from "../transport/tls_identity.ts";
import type { LogOptions } from "./log.ts";

/** A round frame of no tensors, in bytes: no ceiling makes sense below it. */
const LEAST_CEILING = 64;

/** The kernels that can be asked for; `auto` measures and picks. */
export const KERNELS = ["auto", "plain", "simd", "ort-wasm", "ort-webgpu"] as const;

/** A kernel by name, or `auto`. */
export type KernelOption = typeof KERNELS[number];

/** An option that is a time, at least `least` milliseconds. */
export function durationOption(help: string, fallback: string, least = 1): OptionSpec<number> {
  return option({ value: "TIME", help, schema: duration(least), show: formatDuration, fallback });
}

/** The options that both tiers have; each adds its own. */
export const commonTable = {
  listen: option({
    value: "HOST:PORT",
    help: "where to accept connections; port 0 takes a free one, printed as `listening HOST:PORT`",
    schema: hostPort({ port0: true }),
    show: formatHostPort,
    fallback: "127.0.0.1:0",
  }),
  worldSize: option({
    value: "N",
    help: "the number of ranks on all hosts together",
    schema: wholeNumber(1, MAX_WORLD_SIZE),
    launched: launchedWorldSize,
  }),
  roundDeadline: durationOption(
    "how long a round waits for a rank that has not delivered before going on without it",
    "5m",
  ),
  adaptiveDeadline: optionalOption({
    value: "TIME",
    help: "let the round deadline follow recent rounds: 4 times their usual spread, from this " +
      "time on up to --round-deadline; fixed when not given",
    schema: duration(),
    show: formatDuration,
  }),
  frameCeiling: option({
    value: "BYTES",
    help: "the largest frame accepted from a peer",
    schema: byteSize(LEAST_CEILING, MAX_FRAME_BYTES),
    show: formatBytes,
    fallback: formatBytes(DEFAULT_FRAME_CEILING),
  }),
  kernel: option({
    value: "NAME",
    help: `what sums: ${KERNELS.join(", ")}; all give the same bits`,
    schema: choice(KERNELS),
    fallback: "simd",
  }),
  gpuThreshold: optionalOption({
    value: "BYTES",
    help:
      "with a GPU kernel, sum tensors below this size on the CPU; when not given, auto measures " +
      "and an ort kernel asked for by name sums all",
    schema: byteSize(0, MAX_FRAME_BYTES),
    show: formatBytes,
  }),
  kernelCache: optionalOption({
    value: "FILE",
    help: "where --kernel auto keeps what it measured; without it, it measures at every start",
    schema: text("the name of a file"),
  }),
  workers: option({
    value: "N|auto",
    help: "threads that hash large frames; 0 keeps everything on the main one",
    schema: wholeNumberOrAuto(0, 256),
    fallback: "auto",
  }),
  saltFile: optionalOption({
    value: "FILE",
    help: "a file that holds the session salt, 16 bytes as 32 hex digits; instead of TIERFOLD_SALT",
    schema: text("the name of a file"),
  }),
  ...securityTable,
  logFormat: option({
    value: "human|json",
    help: "log lines for people, or one JSON object a line; both on standard error",
    schema: choice(["human", "json"]),
    fallback: "human",
  }),
  logLevel: option({
    value: "LEVEL",
    help: "the least level logged: trace, debug, info, warning, error or fatal",
    schema: choice(["trace", "debug", "info", "warning", "error", "fatal"]),
    fallback: "info",
  }),
};

/** What relay and controller have in common once their options are read. */
export interface CommonOptions {
  /** Where to accept connections. */
  readonly listen: HostPort;
  /** Ranks on all hosts together. */
  readonly worldSize: number;
  /** How long a round waits for a rank; the most of it where it adapts. */
  readonly roundDeadlineMs: number;
  /** The least that the round deadline adapts to; undefined: it is fixed. */
  readonly deadlineFloorMs: number | undefined;
  /** How long to wait for the first round's peers. */
  readonly joinDeadlineMs: number;
  /** The largest frame accepted from a peer. */
  readonly frameCeilingBytes: number;
  readonly kernel: KernelOption;
  /** Below it a GPU kernel leaves tensors to the CPU; undefined: by measurement. */
  readonly gpuThresholdBytes: number | undefined;
  /** A file for what `auto` measured. */
  readonly kernelCache: string | undefined;
  /** Threads beside the main one. */
  readonly workers: number | "auto";
  /** The session salt, 16 bytes. Never to be printed or logged. */
  readonly salt: Uint8Array<ArrayBuffer>;
  /** What is asked of whoever connects. */
  readonly terms: Terms;
  /** How many may connect. */
  readonly gate: GateLimits;
  /** Who this process is under TLS; undefined: connections are plain. */
  readonly tls: TlsIdentity | undefined;
  readonly log: LogOptions;
}

/** A table with at least the shared options, and the deadline that each tier words its own way. */
type CommonTable = typeof commonTable & { readonly joinDeadline: OptionSpec<number> };

/**
 * The shared part of a program's options.
 *
 * @throws {UsageError} when the salt is missing or wrong, the deadlines contradict each other, or the
 *   files of --tls-* do not fit.
 */
export function finishCommon(
  { values, sources }: Resolution<CommonTable>,
  env: ReadEnvironment,
): CommonOptions {
  const { adaptiveDeadline: floor, roundDeadline: cap } = values;
  if (floor !== undefined && floor > cap) {
    throw new UsageError([
      `--adaptive-deadline ${formatDuration(floor)}: it is the least, and above the most, ` +
      `--round-deadline ${formatDuration(cap)}`,
    ]);
  }
  return {
    listen: values.listen,
    worldSize: values.worldSize,
    roundDeadlineMs: values.roundDeadline,
    deadlineFloorMs: values.adaptiveDeadline,
    joinDeadlineMs: values.joinDeadline,
    frameCeilingBytes: values.frameCeiling,
    kernel: values.kernel,
    gpuThresholdBytes: values.gpuThreshold,
    kernelCache: values.kernelCache,
    workers: values.workers,
    salt: readSalt({ env, saltFile: values.saltFile, saltFileSource: sources.saltFile }),
    ...finishIntake(values),
    tls: finishTls(values),
    log: { format: values.logFormat, level: values.logLevel },
  };
}
