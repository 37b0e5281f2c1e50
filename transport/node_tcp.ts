/**
 * TCP by node:net, for ranks that run on Node.js.
 *
 * @module
 */
import { connect } from "node:net";
import { connectByAttempts } from "./attempts.ts";
import type { Connection } from "./connection.ts";
import type { Network } from "./network.ts";
import { SocketConnection } from "./node_socket.ts";
import { type Address, formatAddress } from "./address.ts";

function attempt(
  address: Address,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<Connection | Error> {
  return new Promise((resolve) => {
    const socket = connect({ host: address.hostname, port: address.port });
    const settle = (outcome: Connection | Error) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
      socket.off("error", settle);
      if (outcome instanceof Error) socket.destroy();
      resolve(outcome);
    };
    const stop = () => settle(new Error(`no answer within ${ms} ms`));
    const timer = setTimeout(stop, Math.max(ms, 1));
    signal?.addEventListener("abort", stop);
    socket.once("error", settle);
    socket.once("connect", () => {
      // Small frames must not wait for an acknowledgement of the one before.
      socket.setNoDelay(true);
      settle(new SocketConnection(socket, formatAddress(address)));
    });
  });
}

/** How Node.js connects. */
export const nodeTcp: Pick<Network, "connect"> = {
  connect: (address, what, options) =>
    connectByAttempts(address, what, options, (ms) => attempt(address, ms, options.signal)),
};
