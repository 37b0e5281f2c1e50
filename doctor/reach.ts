/**
 * Greets a running controller and a running relay with the handshakes of a relay and of a rank.
 *
 * Both ask for a rank that cannot be, so that they are refused: the session goes on as if nothing had been,
 * and the refusal is signed, which proves that both ends have one salt. It also says the world size.
 *
 * @module
 */
import { formatHostPort, type HostPort } from "../cli/values.ts";
import { RankClient } from "../rank/client.ts";
import { Uplink } from "../relay/uplink.ts";
import { TransportError } from "../transport/connection.ts";
import { tcp } from "../transport/network.ts";
import { tls } from "../transport/tls.ts";
import type { TlsIdentity } from "../transport/tls_identity.ts";
import { WireError } from "../wire/errors.ts";
import { MAX_CONTROL_BYTES, MAX_WORLD_SIZE } from "../wire/limits.ts";
import { LoopTagger } from "../workers/tagger.ts";
import { amiss, type Finding, ok } from "./finding.ts";

/** A rank that no session has. */
const NOBODY = MAX_WORLD_SIZE - 1;

/** Whom to greet, and how. */
export interface Greeting {
  readonly address: HostPort;
  readonly salt: Uint8Array;
  /** The world size that is expected; undefined where any is. */
  readonly worldSize: number | undefined;
  readonly timeoutMs: number;
  /** For TLS with the controller; plain without it. */
  readonly identity: TlsIdentity | undefined;
}

/** Greets a controller as a relay does. */
export function greetController(greeting: Greeting): Promise<Finding> {
  const { address, salt, timeoutMs, identity } = greeting;
  return judge("controller", greeting, async () => {
    const uplink = await Uplink.open({
      network: identity === undefined ? tcp : tls(identity),
      controller: address,
      hello: () => ({ type: "hello", host: "tierfold-doctor", ranks: [NOBODY] }),
      salt,
      requireNonce: false,
      tagger: new LoopTagger(salt),
      ceiling: MAX_CONTROL_BYTES,
      connectMs: timeoutMs,
      recordMs: timeoutMs,
    }, new AbortController().signal);
    uplink.close();
  });
}

/** Greets a relay as a rank does. */
export function greetRelay(greeting: Greeting): Promise<Finding> {
  const { address, salt, timeoutMs: joinTimeoutMs } = greeting;
  return judge("relay", greeting, async () => {
    const client = await RankClient.connect({
      relay: formatHostPort(address),
      rank: NOBODY,
      worldSize: MAX_WORLD_SIZE,
      salt,
      joinTimeoutMs,
    });
    await client.close();
  });
}

async function judge(
  who: "controller" | "relay",
  { address, worldSize }: Greeting,
  greet: () => Promise<void>,
): Promise<Finding> {
  const where = `${who} at ${formatHostPort(address)}`;
  try {
    await greet();
  } catch (error) {
    if (!isFailure(error)) throw error;
    const size = /because: .*world size.* (\d+)( of this session)?$/.exec(error.message)?.[1];
    if (size === undefined) return amiss(who, "problem", error.message, adviceFor(error, address));
    if (worldSize !== undefined && Number(size) !== worldSize) {
      return amiss(
        who,
        "problem",
        `the ${where} runs a session of ${size} ranks, --world-size is ${worldSize}`,
        "give relays, ranks and controller the same world size",
      );
    }
    return ok(who, `the ${where} knows our salt; its session has ${size} ranks`);
  }
  return ok(who, `the ${where} let us in; we have left again`);
}

type Failure = TransportError | WireError | Deno.errors.NotCapable;

function isFailure(error: unknown): error is Failure {
  return error instanceof TransportError || error instanceof WireError ||
    error instanceof Deno.errors.NotCapable;
}

function adviceFor(error: Failure, { hostname, port }: HostPort): string {
  if (error.message.includes("the salts of the two processes differ")) {
    return "copy one salt file to all hosts, or set TIERFOLD_SALT to the same digits everywhere";
  }
  if (error instanceof Deno.errors.NotCapable) return "run with --allow-net";
  if (error instanceof TransportError && error.code === "unreachable") {
    return `start it, check the address, or open the way: nc -vz ${hostname} ${port}`;
  }
  return "see its log; perhaps another program listens there, or only one of both ends speaks TLS";
}
