/**
 * The controller, the root of the tree: `deno run controller.ts --listen HOST:PORT --world-size N`.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { controllerProgram } from "./cli/controller_options.ts";
import { makeKernel } from "./cli/kernel.ts";
import { intake } from "./cli/networks.ts";
import { PeerFailure, printHttp, printListening, runProgram } from "./cli/program.ts";
import { Controller } from "./controller/server.ts";
import { SessionState } from "./controller/state/session_state.ts";

const log = getLogger(["tierfold", "controller"]);

if (import.meta.main) {
  await runProgram(controllerProgram, async (options, signal) => {
    const { kept, worldSize, operatorToken } = options;
    const ending = new AbortController();
    const end = () => ending.abort(new Error("the operator ended the session"));
    const session = Controller.run({
      ...options,
      network: intake("controller", options, options.tls),
      state: kept && ((arena) => SessionState.open({ ...kept, worldSize }, arena)),
      kernel: (arena) => makeKernel(options, arena),
      onListening: printListening,
      sidelines: { ...options, onHttp: printHttp },
      operator: { token: operatorToken, end },
    }, AbortSignal.any([signal, ending.signal]));
    const outcome = await session.catch((error) => {
      if (error !== ending.signal.reason) throw error;
      return undefined;
    });
    if (outcome === undefined) return log.info("the operator ended the session");
    log.info("done after {rounds} rounds", {
      rounds: outcome.rounds,
    });
    if (outcome.left.length === 0) {
      throw new PeerFailure(`all ranks were lost: ${[...new Set(outcome.lost)].join(", ")}`);
    }
    if (outcome.rounds === 0) {
      throw new PeerFailure(
        "the session ended before its first round: its ranks left, or never came to their relays, whose " +
          "logs say which",
      );
    }
  });
}
