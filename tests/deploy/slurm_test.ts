// The job script: by shellcheck, and as a whole job of real processes under a small srun.
import { assertEquals, assertStringIncludes } from "@std/assert";
import { output } from "../../scripts/command.ts";
import { bundle } from "../../scripts/bundle.ts";
import { PROGRAMS } from "../../scripts/programs.ts";
import { freePort } from "../delta/sockets.ts";
import { testWith } from "../tools.ts";

const root = new URL("../../", import.meta.url).pathname;
const script = `${root}deploy/slurm/tierfold.sbatch`;
const fixtures = `${root}tests/deploy/fixtures`;

testWith(["bash"], "slurm: the script parses", async () => {
  await output(["bash", "-n", script], root);
});

testWith(["shellcheck"], "slurm: shellcheck finds nothing", async () => {
  await output(["shellcheck", script], root);
});

/** Runs the script as sbatch would, with programs of `folder` on the PATH. */
async function job(folder: string, command: readonly string[], more: Record<string, string>) {
  const { code, stdout, stderr } = await new Deno.Command("bash", {
    args: [script, ...command],
    cwd: folder,
    env: {
      PATH: `${folder}:${fixtures}:${Deno.env.get("PATH")}`,
      SLURM_JOB_NODELIST: "node-[a-b]",
      TIERFOLD_CONTROLLER_PORT: `${freePort()}`,
      TIERFOLD_RELAY_PORT: `${freePort()}`,
      NO_COLOR: "1",
      ...more,
    },
    stdin: "null",
  }).output();
  return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
}

async function withFolder(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const write = (path: string, lines: string) =>
  Deno.writeTextFile(path, `#!/usr/bin/env bash\n${lines}\n`, { mode: 0o755 });

const oneNode = { SLURM_NNODES: "1", SLURM_NTASKS: "2", SLURM_NTASKS_PER_NODE: "2" };

testWith(
  ["bash", "openssl"],
  "slurm: a job of two ranks runs from its salt to its end",
  () =>
    withFolder(async (folder) => {
      for (const program of PROGRAMS) {
        const file = `${folder}/${program.name}.js`;
        await bundle(root, program, file);
        const start = ["exec", `'${Deno.execPath()}'`, "run", "--no-prompt", "--no-config"];
        const flags = program.permissions.map((flag) => `'${flag}'`);
        await write(`${folder}/${program.name}`, [...start, ...flags, file, '"$@"'].join(" "));
      }
      const rank = [Deno.execPath(), "run", "--quiet", "-A", `${fixtures}/rank.ts`];
      const { code, out, err } = await job(folder, rank, oneNode);
      assertEquals(code, 0, err);
      const said = out.split("\n").filter((line) => line.startsWith("rank "));
      assertEquals(said.sort(), ["rank 0 of 2: 0.5", "rank 1 of 2: 0.5"]);
      assertStringIncludes(err, "done after 1 rounds");

      // A training that fails ends the job with its exit code, and the servers with it.
      const connects = "(exec 3<>/dev/tcp/${TIERFOLD_RELAY/:/\\/}) 2>/dev/null";
      const failing = `until ${connects}; do sleep 0.1; done; exit 7`;
      const failed = await job(folder, ["bash", "-c", failing], oneNode);
      assertEquals(failed.code, 7, failed.err);
      assertStringIncludes(failed.err, "SIGTERM: ending the session");
    }),
);

testWith(
  ["bash", "openssl"],
  "slurm: each node's relay is told its own ranks",
  () =>
    withFolder(async (folder) => {
      for (const { name } of PROGRAMS) {
        await write(`${folder}/${name}`, `echo "${name} $*"; echo "salt of \${#TIERFOLD_SALT}"`);
      }
      const size = { SLURM_NNODES: "3", SLURM_NTASKS: "12", SLURM_NTASKS_PER_NODE: "4" };
      const { code, out, err } = await job(folder, ["true"], size);
      assertEquals(code, 0, err);
      const lines = out.split("\n");
      const ranks = lines.flatMap((line) =>
        /^tierfold-relay .*--ranks (\S+)/.exec(line)?.[1] ?? []
      );
      assertEquals(ranks.sort(), ["0-3", "4-7", "8-11"]);
      assertEquals(lines.filter((line) => line === "salt of 32").length, 4);
      assertStringIncludes(out, "tierfold-controller --listen 0.0.0.0:");
      assertStringIncludes(out, "--world-size 12 --controller localhost:");
    }),
);

testWith(
  ["bash"],
  "slurm: without a program the script says how to use it",
  () =>
    withFolder(async (folder) => {
      const { code, err } = await job(folder, [], oneNode);
      assertEquals([code, err], [
        2,
        "usage: sbatch tierfold.sbatch TRAINING-PROGRAM ARGUMENTS...\n",
      ]);
    }),
);
