/**
 * The relay of one host: `deno run relay.ts --ranks 0-3 --world-size 8 --controller HOST:PORT`.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { PeerFailure, printHttp, printListening, runProgram } from "./cli/program.ts";
import { relayProgram } from "./cli/relay_options.ts";
import { makeKernel } from "./cli/kernel.ts";
import { intake } from "./cli/networks.ts";
import { Relay } from "./relay/server.ts";
import { tls } from "./transport/tls.ts";

if (import.meta.main) {
  await runProgram(relayProgram, async (options, signal) => {
    const outcome = await Relay.run({
      ...options,
      ranksNetwork: intake("relay", options, undefined),
      controllerNetwork: options.tls && tls(options.tls),
      kernel: (arena) => makeKernel(options, arena),
      onListening: printListening,
      onHttp: printHttp,
    }, signal);
    getLogger(["tierfold", "relay"]).info("done after {rounds} rounds", { rounds: outcome.rounds });
    if (outcome.left.length === 0) {
      const { lost } = outcome;
      throw new PeerFailure(
        lost.length === 0
          ? `no rank of host ${options.host} came`
          : `all ranks of host ${options.host} were lost: ${[...new Set(lost)].join(", ")}`,
      );
    }
  });
}
