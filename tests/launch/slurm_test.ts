// Ranks and relays under Slurm's srun, on two nodes; and the job script of deploy/.
import { assertEquals, assertStringIncludes } from "@std/assert";
import { PROGRAMS } from "../../scripts/programs.ts";
import { freePort, runLaunched, TASK } from "./session.ts";
import { jobMissing, Slurm, slurmMissing } from "./slurm.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

Deno.test({
  name: `launch: srun starts four ranks and two relays on two nodes${slurmMissing}`,
  ignore: slurmMissing !== "",
  fn: async () => {
    await using slurm = await Slurm.start();
    await runLaunched({
      command: ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", TASK],
      worldSize: 4,
      localRanks: [0, 1, 0, 1],
      launcher: "slurm",
      env: slurm.env,
    });
  },
});

/** Puts the servers' names on a PATH, with the permissions that their binaries have. */
async function writePrograms(folder: string): Promise<void> {
  for (const { name, entry, permissions } of PROGRAMS) {
    const flags = permissions.map((flag) => `'${flag}'`).join(" ");
    await Deno.writeTextFile(
      `${folder}/${name}`,
      `#!/usr/bin/env bash\nexec '${Deno.execPath()}' run --no-prompt ${flags} '${ROOT}${entry}' "$@"\n`,
      { mode: 0o755 },
    );
  }
}

Deno.test({
  name: `launch: sbatch runs the job script of deploy/ from its salt to its end${jobMissing}`,
  ignore: jobMissing !== "",
  fn: async () => {
    await using slurm = await Slurm.start();
    const folder = await Deno.makeTempDir();
    try {
      await writePrograms(folder);
      const rank = [Deno.execPath(), "run", "--quiet", "--no-prompt", "--allow-net", "--allow-env"];
      const state = await slurm.batch([
        ...["--nodes=1", "--ntasks-per-node=2", `--output=${folder}/output`],
        `${ROOT}deploy/slurm/tierfold.sbatch`,
        ...[...rank, `${ROOT}tests/launch/rank.ts`],
      ], {
        PATH: `${folder}:${Deno.env.get("PATH")}`,
        TIERFOLD_CONTROLLER_PORT: `${freePort()}`,
        TIERFOLD_RELAY_PORT: `${freePort()}`,
        NO_COLOR: "1",
      });
      const output = await Deno.readTextFile(`${folder}/output`);
      assertEquals(state, "COMPLETED", output);
      const said = [...output.matchAll(/\{"language"[^{}]*\}/g)].map(([object]) =>
        JSON.parse(object)
      )
        .sort((a, b) => a.rank - b.rank);
      assertEquals(said.map(({ rank, worldSize, counts }) => [rank, worldSize, counts]), [
        [0, 2, [1, 2]],
        [1, 2, [1, 2]],
      ]);
      assertStringIncludes(said[0].source, "rank 0 by SLURM_PROCID (slurm)");
      assertStringIncludes(output, "done after 2 rounds");
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
