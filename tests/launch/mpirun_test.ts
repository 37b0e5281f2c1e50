// Ranks and their relay under Open MPI's mpirun.
import { installed, runLaunched, TASK } from "./session.ts";

const missing = await installed("mpirun")
  ? ""
  : " (skipped: mpirun is not there: openmpi-bin is not installed)";

Deno.test({
  name: `launch: mpirun starts four ranks and their relay${missing}`,
  ignore: missing !== "",
  fn: () =>
    runLaunched({
      command: ["mpirun", "-n", "4", "--oversubscribe", "--allow-run-as-root", TASK],
      worldSize: 4,
      localRanks: [0, 1, 2, 3],
      launcher: "openmpi",
    }),
});
