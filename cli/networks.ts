/**
 * The networks that the options ask for.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { gated } from "../transport/gated.ts";
import { bareTcp, type Network, tcp } from "../transport/network.ts";
import { tls } from "../transport/tls.ts";
import type { CommonOptions } from "./common_options.ts";

/**
 * Where a server accepts connections: behind the gate, with TLS where it is asked for.
 *
 * @param tier Whose log tells of refused connections: "relay" or "controller".
 * @param identity Undefined: in the clear.
 */
export function intake(
  tier: string,
  { gate }: CommonOptions,
  identity: CommonOptions["tls"],
): Network {
  const log = getLogger(["tierfold", tier]);
  const behindGate = gated(identity === undefined ? tcp : bareTcp, gate, ({ count, last }) => {
    log.warn("{count} connections were closed before they said who they are; the last, {last}", {
      count,
      last,
    });
  });
  return identity === undefined ? behindGate : tls(identity, behindGate);
}
