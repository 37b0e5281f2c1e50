/**
 * The options that say with whom a process speaks: TLS, and what it may accept without it.
 *
 * @module
 */

import { TERMS, type Terms } from "../serve/terms.ts";
import { BURST_SECONDS, GATE_LIMITS, type GateLimits } from "../transport/gate.ts";
import { checkIdentity, type TlsIdentity } from "../transport/tls_identity.ts";
import { describe } from "./options.ts";
import { option, optionalOption, type OptionValues, UsageError } from "./spec.ts";
import {
  duration,
  formatDuration,
  formatHostPort,
  type HostPort,
  text,
  wholeNumber,
  yesNo,
} from "./values.ts";

const file = (help: string) =>
  optionalOption({ value: "FILE", help, schema: text("the name of a file") });

const limit = (help: string, fallback: number) =>
  option({
    value: "N",
    help,
    schema: wholeNumber(1, 1_000_000),
    fallback: `${fallback}`,
  });

/** The table of these options. */
export const securityTable = {
  tlsCert: file("this process's certificate in PEM form: relay and controller speak TLS"),
  tlsKey: file("the private key of --tls-cert, in PEM form without a passphrase"),
  tlsCa: file("the CA that must have issued the other end's certificate, in PEM form"),
  allowPlain: option({
    value: null,
    help:
      "listen where other hosts can connect even without TLS: what they send can be read on its way",
    schema: yesNo(),
    fallback: "false",
  }),
  requireNonce: option({
    value: null,
    help: "refuse ranks, relays or a controller that do not seal their connection against replay",
    schema: yesNo(),
    fallback: "false",
  }),
  handshakeDeadline: option({
    value: "TIME",
    help: "how long whoever connects may take to say who it is",
    schema: duration(),
    show: formatDuration,
    fallback: formatDuration(TERMS.handshakeMs),
  }),
  maxConnections: limit("the most connections at once", GATE_LIMITS.connections),
  maxStrangers: limit(
    "the most connections at once that have not said who they are; beyond it the oldest is closed",
    GATE_LIMITS.strangers,
  ),
  maxStrangersPerAddress: limit(
    "the same for one address; all ranks of a host count as one",
    GATE_LIMITS.strangersPerAddress,
  ),
  acceptRate: limit(
    `the most new connections a second from one address, with bursts of ${BURST_SECONDS} times as many`,
    GATE_LIMITS.acceptRate,
  ),
};

/** What is asked of whoever connects, and how many may. */
export interface Intake {
  readonly terms: Terms;
  readonly gate: GateLimits;
}

/** Gathers the limits on whoever connects. */
export function finishIntake(values: OptionValues<typeof securityTable>): Intake {
  return {
    terms: { handshakeMs: values.handshakeDeadline, requireNonce: values.requireNonce },
    gate: {
      connections: values.maxConnections,
      strangers: values.maxStrangers,
      strangersPerAddress: values.maxStrangersPerAddress,
      acceptRate: values.acceptRate,
    },
  };
}

/** A place to listen at that other hosts may reach. */
export interface Exposure {
  /** The option that names it. */
  readonly flag: string;
  readonly place: HostPort | undefined;
  /** What to do about it other than --allow-plain; undefined where there is nothing. */
  readonly remedy?: string | undefined;
}

/**
 * Refuses to listen in the clear where other hosts can connect, unless that was asked for.
 *
 * @throws {UsageError} otherwise.
 */
export function expectPrivate(exposures: readonly Exposure[], allowPlain: boolean): void {
  const open = exposures.filter(({ place }) => place !== undefined && !isLoopback(place.hostname));
  if (allowPlain || open.length === 0) return;
  throw new UsageError(
    open.map(({ flag, place, remedy }) =>
      `${flag} ${
        formatHostPort(place!)
      }: other hosts can connect there, and what they send is not ` +
      `encrypted; ${
        remedy === undefined ? "" : `${remedy}, or `
      }listen on 127.0.0.1, or, on a network ` +
      "that you trust, add --allow-plain"
    ),
  );
}

/** Whether only this host can connect to an address. */
function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "::1" || /^(::ffff:)?127\.[\d.]+$/.test(hostname);
}

/** More than any chain of certificates: what a wrong file may cost in memory, in bytes. */
const MAX_FILE_BYTES = 1 << 20;

/**
 * Reads the files of --tls-cert, --tls-key and --tls-ca.
 *
 * @returns Undefined when none of the three is given.
 * @throws {UsageError} when some are missing, cannot be read, or do not belong together.
 */
export function finishTls(
  values: Pick<OptionValues<typeof securityTable>, "tlsCert" | "tlsKey" | "tlsCa">,
): TlsIdentity | undefined {
  const { tlsCert, tlsKey, tlsCa } = values;
  const given = [tlsCert, tlsKey, tlsCa].filter((name) => name !== undefined).length;
  if (given === 0) return undefined;
  if (tlsCert === undefined || tlsKey === undefined || tlsCa === undefined) {
    throw new UsageError(["--tls-cert, --tls-key and --tls-ca go together: give all three"]);
  }
  const identity = {
    cert: read(tlsCert, "--tls-cert"),
    key: read(tlsKey, "--tls-key"),
    ca: read(tlsCa, "--tls-ca"),
  };
  try {
    checkIdentity(identity, new Date());
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    const files = `--tls-cert ${tlsCert}, --tls-key ${tlsKey}, --tls-ca ${tlsCa}`;
    throw new UsageError([`${files}: ${error.message}`]);
  }
  return identity;
}

function read(path: string, flag: string): string {
  try {
    const { size } = Deno.statSync(path);
    if (size <= MAX_FILE_BYTES) return Deno.readTextFileSync(path);
    throw new UsageError([`${flag} ${path}: expected a file in PEM form, got ${size} bytes`]);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError([`${flag} ${path}: cannot be read: ${describe(error)}`]);
  }
}
