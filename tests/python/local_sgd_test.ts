// The PyTorch example, in one session with a rank that trains with TensorFlow.js.
import { assert, assertEquals } from "@std/assert";
import { layOutHosts, startCluster, startRank } from "../../examples/cluster.ts";
import { type EndReport, parseReport, type RoundReport } from "../../examples/digits/report.ts";
import { ProcessGroup } from "../../examples/processes.ts";
import { pythonTest } from "./interpreters.ts";

const ROUNDS = 5;
const SEED = 1;

pythonTest(
  "pytorch: ranks of PyTorch and TensorFlow.js train one model, to the same bits",
  "torch",
  async (python) => {
    await using group = new ProcessGroup();
    const cluster = await startCluster(group, layOutHosts(2, 2));
    const rounds: RoundReport[] = [];
    const ends: EndReport[] = [];
    const onLine = (line: string) => {
      const report = parseReport(line);
      if (report.kind === "round") rounds.push(report);
      if (report.kind === "end") ends.push(report);
    };
    const examples = new URL("../../examples/", import.meta.url);
    const tensorflow = {
      script: new URL("digits/rank.ts", examples),
      args: [`${ROUNDS}`, `${SEED}`],
      onLine,
    };
    const pytorch = {
      script: new URL("pytorch_local_sgd.py", examples),
      args: ["--rounds", `${ROUNDS}`, "--seed", `${SEED}`, "--deno", Deno.execPath()],
      interpreter: python.path,
      onLine,
    };
    const ranks = [pytorch, tensorflow]
      .map((plan, rank) => startRank(group, cluster, rank, plan));
    await Promise.race([
      Promise.all([...ranks, ...cluster.servers].map((each) => each.ended)),
      group.failed,
    ]);

    assertEquals(rounds.length, 2 * ROUNDS);
    assertEquals(ends.length, 2);
    assertEquals(new Set(ends.map(({ sha256 }) => sha256)).size, 1);
    // Rank 0 measures. Chance is 0.1; a few rounds lead far above it.
    const [accuracy] = ends.flatMap((end) => end.accuracy ?? []);
    assert(accuracy !== undefined && accuracy > 0.35, `accuracy ${accuracy}`);
    const bytes = rounds.map(({ bytesUp }) => bytesUp);
    assertEquals(new Set(bytes).size, 1, "the frames of both have the same length");
  },
);
