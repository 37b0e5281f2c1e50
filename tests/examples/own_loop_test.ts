import { assertEquals } from "@std/assert";
import { layOutHosts, startCluster, startRank } from "../../examples/cluster.ts";
import { ProcessGroup } from "../../examples/processes.ts";

Deno.test("own_loop.ts: two ranks on two hosts, with points of their own, agree on the line", async () => {
  await using group = new ProcessGroup();
  const cluster = await startCluster(group, layOutHosts(2, 2));
  const lines: string[] = [];
  const ranks = [0, 1].map((rank) =>
    startRank(group, cluster, rank, {
      script: new URL("../../examples/own_loop.ts", import.meta.url),
      onLine: (line) => lines.push(line),
    })
  );
  // The ranks come last, so that a server's failure is reported as what it is.
  await Promise.race([
    Promise.all([...cluster.servers, ...ranks].map(({ ended }) => ended)),
    group.failed,
  ]);
  assertEquals(lines.sort(), ["rank 0: y = 3.000x + 1.000", "rank 1: y = 3.000x + 1.000"]);
});
