// Ranks and their relays under Slurm's srun, on two nodes that are two daemons on this machine.
import { assert } from "@std/assert";
import { Child } from "../../bench/child.ts";
import { PATIENCE_MS, pause } from "../cluster/waiting.ts";
import { freePort, installed, runLaunched, TASK } from "./session.ts";

const NODES = ["n0", "n1"];

/** Slurm's configuration: no accounts, no accounting, nothing outside `folder`. */
function configuration(folder: string, host: string): string {
  return `
ClusterName=tierfold
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${freePort()}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation=${folder}/state
SlurmdSpoolDir=${folder}/%n
SlurmctldPidFile=${folder}/slurmctld.pid
SlurmdPidFile=${folder}/%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
${
    NODES.map((node) =>
      `NodeName=${node} NodeHostname=${host} NodeAddr=127.0.0.1 Port=${freePort()} CPUs=2`
    ).join("\n")
  }
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`;
}

/** A controller and a node's daemon each; at the end of an `await using` block none is left. */
class Slurm implements AsyncDisposable {
  readonly env: Readonly<Record<string, string>>;
  readonly #folder: string;
  readonly #daemons: Child[];

  private constructor(folder: string) {
    this.#folder = folder;
    const config = `${folder}/slurm.conf`;
    this.env = { SLURM_CONF: config };
    const daemon = (command: string[]) =>
      new Child({ name: command.join(" "), command, env: this.env });
    this.#daemons = [
      daemon(["slurmctld", "-D", "-f", config]),
      ...NODES.map((node) => daemon(["slurmd", "-D", "-N", node, "-f", config])),
    ];
  }

  static async start(): Promise<Slurm> {
    const folder = await Deno.makeTempDir();
    for (const name of ["state", ...NODES]) await Deno.mkdir(`${folder}/${name}`);
    await Deno.writeTextFile(`${folder}/slurm.conf`, configuration(folder, Deno.hostname()));
    const slurm = new Slurm(folder);
    try {
      await slurm.#untilIdle();
      return slurm;
    } catch (error) {
      await slurm[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #untilIdle(): Promise<void> {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      const { stdout } = await new Deno.Command("sinfo", {
        args: ["--noheader", "--format", "%D %t"],
        env: this.env,
        stderr: "null",
      }).output();
      const states = new TextDecoder().decode(stdout).trim();
      if (states === `${NODES.length} idle`) return;
      const words = this.#daemons.map(({ stderr }) => stderr).join("\n");
      assert(
        Date.now() < end,
        `the nodes are not idle but "${states}"; the daemons wrote\n${words}`,
      );
      await pause(200);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#daemons.map((daemon) => daemon.stop()));
    await Deno.remove(this.#folder, { recursive: true });
  }
}

const missing = !await installed("slurmctld") || !await installed("slurmd")
  ? " (skipped: slurmctld and slurmd are not there: slurm-wlm is not installed)"
  : Deno.uid() !== 0
  ? " (skipped: Slurm's daemons want root)"
  : "";

Deno.test({
  name: `launch: srun starts four ranks and two relays on two nodes${missing}`,
  ignore: missing !== "",
  fn: async () => {
    await using slurm = await Slurm.start();
    await runLaunched({
      command: ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--overcommit", TASK],
      worldSize: 4,
      localRanks: [0, 1, 0, 1],
      launcher: "slurm",
      env: slurm.env,
    });
  },
});
