/**
 * What the doctor is told: the same names as for relay and controller, so that their environment and
 * config files can be checked as they are.
 *
 * @module
 */
import { commonTable, type KernelOption } from "../cli/common_options.ts";
import { controllerProgram } from "../cli/controller_options.ts";
import type { OptionSource, ReadEnvironment } from "../cli/options.ts";
import type { Program } from "../cli/program.ts";
import { finishTls, securityTable } from "../cli/security_options.ts";
import type { TlsIdentity } from "../transport/tls_identity.ts";
import { relayProgram } from "../cli/relay_options.ts";
import { option, optionalOption } from "../cli/spec.ts";
import {
  duration,
  formatDuration,
  formatHostPort,
  type HostPort,
  hostPort,
  wholeNumber,
  yesNo,
} from "../cli/values.ts";
import { MAX_WORLD_SIZE } from "../wire/limits.ts";

/** What to look at. */
export interface DoctorOptions {
  readonly env: ReadEnvironment;
  readonly saltFile: string | undefined;
  readonly saltFileSource: OptionSource;
  /** Gives the TLS identity; throws a UsageError when its files are wrong. */
  readonly tls: () => TlsIdentity | undefined;
  /** Where a relay or controller is going to listen on this host. */
  readonly listen: HostPort;
  /** Where it is going to serve HTTP. */
  readonly http: HostPort | undefined;
  readonly worldSize: number | undefined;
  readonly controller: HostPort | undefined;
  readonly controllerHttp: HostPort | undefined;
  readonly relay: HostPort | undefined;
  readonly kernel: KernelOption;
  /** How long another host may take to answer, in milliseconds. */
  readonly timeoutMs: number;
  readonly json: boolean;
}

const place = (help: string, port0 = false) =>
  optionalOption({
    value: "HOST:PORT",
    help,
    schema: hostPort({ port0 }),
    show: formatHostPort,
  });

const table = {
  controller: place("a running controller, to be greeted as a relay does"),
  controllerHttp: place("that controller's --http address, whose clock is compared with ours"),
  relay: place("a running relay, to be greeted as a rank does"),
  saltFile: commonTable.saltFile,
  tlsCert: securityTable.tlsCert,
  tlsKey: securityTable.tlsKey,
  tlsCa: securityTable.tlsCa,
  listen: option({
    ...commonTable.listen,
    help: "where a relay or controller is going to listen on this host",
  }),
  http: place("where a controller is going to serve HTTP on this host", true),
  worldSize: optionalOption({
    value: "N",
    help: "the number of ranks on all hosts together, to be compared with what runs",
    schema: wholeNumber(0, MAX_WORLD_SIZE),
  }),
  kernel: commonTable.kernel,
  timeout: option({
    value: "TIME",
    help: "how long another host may take to answer",
    schema: duration(),
    show: formatDuration,
    fallback: "5s",
  }),
  json: option({
    value: null,
    help: "print the findings as JSON",
    schema: yesNo(),
    fallback: "false",
  }),
};

/** The doctor as a program. */
export const doctorProgram: Program<typeof table, DoctorOptions> = {
  name: "tierfold-doctor",
  usage: "deno task doctor",
  summary:
    "Looks at what a relay or controller needs on this host and at who it is to talk to, and says what to do.",
  exitCodes: "0 no problem was found; 1 there are problems; 2 wrong options.",
  examples: [
    ["deno task doctor", "this host alone"],
    ["deno task doctor --controller 10.0.0.1:7070", "before its relay is started"],
    ["deno task doctor --relay 127.0.0.1:7071 --json", "before a rank is, for a script"],
    ["deno task doctor --config relay.json", "with what that relay will be told"],
  ],
  table,
  // A config file of a relay or controller is read for what it says of these.
  passedOver: [...Object.keys(relayProgram.table), ...Object.keys(controllerProgram.table)],
  finish: ({ values, sources }, env) => ({
    env,
    saltFile: values.saltFile,
    saltFileSource: sources.saltFile,
    tls: () => finishTls(values),
    listen: values.listen,
    http: values.http,
    worldSize: values.worldSize,
    controller: values.controller,
    controllerHttp: values.controllerHttp,
    relay: values.relay,
    kernel: values.kernel,
    timeoutMs: values.timeout,
    json: values.json,
  }),
};
