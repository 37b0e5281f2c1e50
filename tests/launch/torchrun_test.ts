// Ranks and their relay under torchrun.
import { pythonTest } from "../python/interpreters.ts";
import { runLaunched, TASK } from "./session.ts";

pythonTest("launch: torchrun starts two ranks and their relay", "torch", ({ path }) =>
  runLaunched({
    // PyTorch 1.13 fails on Python 3.11 unless a map says what is redirected; of rank 9 here, so nothing.
    command: [
      ...[path, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
      ...["--redirects", "9:1", "--tee", "9:1"],
      ...["--no_python", TASK],
    ],
    worldSize: 2,
    localRanks: [0, 1],
    launcher: "torchrun",
  }));
