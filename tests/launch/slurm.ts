// Slurm as a test needs it: a controller and two nodes, which are daemons on this machine.
import { assert } from "@std/assert";
import { lookup } from "node:dns/promises";
import { Child } from "../../bench/child.ts";
import { pause } from "../cluster/waiting.ts";
import { installed } from "../tools.ts";
import { freePort } from "./session.ts";

/** How long a part of Slurm may take on a busy machine. */
const PATIENCE_MS = 120_000;

/** The first node has this machine's own name, which resolves to its address. */
const HOST = Deno.hostname().split(".")[0]!;
const NODES = [HOST, "other"];

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
      `NodeName=${node} NodeHostname=${host} NodeAddr=127.0.0.1 Port=${freePort()} CPUs=16`
    ).join("\n")
  }
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`;
}

/** The end of a test's name where Slurm cannot be started, else nothing. */
export const slurmMissing = !["slurmctld", "slurmd", "srun"].every(installed)
  ? " (skipped: Slurm is not there: slurm-wlm is not installed)"
  : Deno.uid() !== 0
  ? " (skipped: Slurm's daemons want root)"
  : "";

/** The same for a job whose tasks find the first node by its name. */
export const jobMissing = slurmMissing !== "" ? slurmMissing : await lookup(HOST).then(
  () => "",
  () => ` (skipped: the name of this host, ${HOST}, does not resolve)`,
);

/** A controller and a node's daemon each; at the end of an `await using` block none is left. */
export class Slurm implements AsyncDisposable {
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
    await Deno.writeTextFile(`${folder}/slurm.conf`, configuration(folder, HOST));
    const slurm = new Slurm(folder);
    try {
      await slurm.#untilIdle();
      return slurm;
    } catch (error) {
      await slurm[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Runs a batch job; gives the state in which it ended. `sbatch --wait` would look every 10 s only. */
  async batch(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
    const job = await this.#ask(["sbatch", "--parsable", ...args], env);
    assert(/^\d+$/.test(job), `sbatch said "${job}"`);
    return await this.#until("the job has ended", async () => {
      const text = await this.#ask(["scontrol", "show", "job", "--oneliner", job]);
      const [, state = ""] = /JobState=(\w+)/.exec(text) ?? [];
      return ["PENDING", "RUNNING", "COMPLETING", ""].includes(state) ? undefined : state;
    });
  }

  async #untilIdle(): Promise<void> {
    await this.#until("all nodes are idle", async () => {
      const states = await this.#ask(["sinfo", "--noheader", "--format", "%D %t"]);
      return states === `${NODES.length} idle` ? states : undefined;
    });
  }

  /** Asks again and again until there is an answer. */
  async #until(what: string, ask: () => Promise<string | undefined>): Promise<string> {
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      const answer = await ask();
      if (answer !== undefined) return answer;
      const words = this.#daemons.map(({ stderr }) => stderr).join("\n");
      assert(Date.now() < end, `waiting until ${what}; the daemons wrote\n${words}`);
      await pause(200);
    }
  }

  /** What a command of Slurm's says; nothing where it fails, as all do until the controller is up. */
  async #ask(
    [program = "", ...args]: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Promise<string> {
    const { stdout } = await new Deno.Command(program, {
      args,
      env: { ...this.env, ...env },
      stderr: "null",
    }).output();
    return new TextDecoder().decode(stdout).trim();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A step's own process outlives daemons that end before it has told them of its end.
    await this.#until(
      "no job is left",
      async () => await this.#ask(["squeue", "--noheader"]) === "" ? "" : undefined,
    );
    await Promise.all(this.#daemons.map((daemon) => daemon.stop()));
    await Deno.remove(this.#folder, { recursive: true });
  }
}
