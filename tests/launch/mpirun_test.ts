// Ranks and their relay under Open MPI's mpirun.
import { testWith } from "../tools.ts";
import { runLaunched, TASK } from "./session.ts";

testWith(["mpirun"], "launch: mpirun starts four ranks and their relay", () =>
  runLaunched({
    command: ["mpirun", "-n", "4", "--oversubscribe", "--allow-run-as-root", TASK],
    worldSize: 4,
    localRanks: [0, 1, 2, 3],
    launcher: "openmpi",
  }));
