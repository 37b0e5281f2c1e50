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

if (import.meta.main) {
  await runProgram(controllerProgram, async (options, signal) => {
    const { kept, worldSize } = options;
    const outcome = await Controller.run({
      ...options,
      network: intake("controller", options, options.tls),
      state: kept && ((arena) => SessionState.open({ ...kept, worldSize }, arena)),
      kernel: (arena) => makeKernel(options, arena),
      onListening: printListening,
      sidelines: { ...options, onHttp: printHttp },
    }, signal);
    getLogger(["tierfold", "controller"]).info("done after {rounds} rounds", {
      rounds: outcome.rounds,
    });
    if (outcome.left.length === 0) {
      throw new PeerFailure(`all ranks were lost: ${outcome.lost.join(", ")}`);
    }
  });
}
