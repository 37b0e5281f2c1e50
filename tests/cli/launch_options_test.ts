// What a relay takes from the launcher that started it.
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { parseControllerOptions } from "../../cli/controller_options.ts";
import { resolveOptions } from "../../cli/options.ts";
import { configReport } from "../../cli/program.ts";
import { parseRelayOptions, relayProgram } from "../../cli/relay_options.ts";
import { formatHostPort, formatRanks } from "../../cli/values.ts";
import { UsageError } from "../../cli/spec.ts";

type Variables = Readonly<Record<string, string>>;

const environment = (variables: Variables) => {
  const all: Variables = { TIERFOLD_SALT: "9d1c4be07a52f8360ee5b3476d91c82f", ...variables };
  return (name: string) => all[name];
};

const TORCHRUN = {
  RANK: "5",
  WORLD_SIZE: "8",
  LOCAL_RANK: "1",
  LOCAL_WORLD_SIZE: "4",
  MASTER_ADDR: "10.0.0.1",
  MASTER_PORT: "7070",
};
const OPENMPI = {
  OMPI_COMM_WORLD_RANK: "3",
  OMPI_COMM_WORLD_SIZE: "6",
  OMPI_COMM_WORLD_LOCAL_RANK: "0",
  OMPI_COMM_WORLD_LOCAL_SIZE: "3",
};
const SLURM = {
  SLURM_PROCID: "5",
  SLURM_LOCALID: "1",
  SLURM_NTASKS: "7",
  SLURM_NODEID: "2",
  SLURM_STEP_TASKS_PER_NODE: "2(x3),1",
};
const CONTROLLER = { TIERFOLD_CONTROLLER: "h:1" };

const found: [
  name: string,
  env: Variables,
  ranks: string,
  worldSize: number,
  controller: string,
][] = [
  ["torchrun, the second host", TORCHRUN, "4-7", 8, "10.0.0.1:7070"],
  ["mpirun, the second host", { ...OPENMPI, ...CONTROLLER }, "3-5", 6, "h:1"],
  [
    "mpirun, one host, and this process no rank of it",
    { OMPI_COMM_WORLD_SIZE: "4", OMPI_COMM_WORLD_LOCAL_SIZE: "4", ...CONTROLLER },
    "0-3",
    4,
    "h:1",
  ],
  ["srun, the third node", { ...SLURM, ...CONTROLLER }, "4-5", 7, "h:1"],
  [
    "srun, the last node, by the job's own list",
    {
      SLURM_NTASKS: "7",
      SLURM_NODEID: "3",
      SLURM_TASKS_PER_NODE: "2(x3),1",
      SLURM_DISTRIBUTION: "block:cyclic",
      ...CONTROLLER,
    },
    "6",
    7,
    "h:1",
  ],
  [
    "an IPv6 master",
    { ...TORCHRUN, MASTER_ADDR: "fd00::1" },
    "4-7",
    8,
    "[fd00::1]:7070",
  ],
  [
    "TIERFOLD_LAUNCHER between mpirun and Slurm",
    { ...OPENMPI, ...SLURM, ...CONTROLLER, TIERFOLD_LAUNCHER: "openmpi" },
    "3-5",
    6,
    "h:1",
  ],
];

for (const [name, env, ranks, worldSize, controller] of found) {
  Deno.test(`launcher's options: ${name}`, () => {
    const options = parseRelayOptions(["--host", "a"], environment(env));
    assertEquals(formatRanks(options.ranks), ranks);
    assertEquals(options.worldSize, worldSize);
    assertEquals(formatHostPort(options.controller), controller);
  });
}

const refused: [name: string, env: Variables, texts: string[]][] = [
  [
    "torchrun's own store is no controller",
    { ...TORCHRUN, TORCHELASTIC_USE_AGENT_STORE: "True" },
    ["--controller is not given", "torchrun itself listens at MASTER_ADDR 10.0.0.1"],
  ],
  [
    "a master without a port",
    { ...TORCHRUN, MASTER_PORT: "" },
    ["--controller HOST:PORT is needed"],
  ],
  [
    "launchers that contradict each other",
    { ...TORCHRUN, ...SLURM },
    ["--world-size is not given", "8 by WORLD_SIZE (torchrun) but 7 by SLURM_NTASKS (slurm)"],
  ],
  [
    "a rank alone does not tell who else is here",
    { ...CONTROLLER, RANK: "1", WORLD_SIZE: "2" },
    ["--ranks RANKS is needed"],
  ],
  [
    "mpirun --map-by node, where it shows",
    { ...CONTROLLER, ...OPENMPI, OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_LOCAL_RANK: "2" },
    ["--ranks is not given", "make -1 to 1 the ranks of this host"],
  ],
  [
    "ranks beyond the world",
    { ...CONTROLLER, ...OPENMPI, OMPI_COMM_WORLD_RANK: "5" },
    ["make 5 to 7 the ranks of this host", "world size of 6"],
  ],
  [
    "srun --distribution cyclic",
    { ...CONTROLLER, ...SLURM, SLURM_DISTRIBUTION: "cyclic" },
    ["SLURM_DISTRIBUTION is cyclic"],
  ],
  [
    "a step of relays",
    { ...CONTROLLER, ...SLURM, SLURM_STEP_TASKS_PER_NODE: "1(x7)", SLURM_NODEID: "0" },
    [
      "--world-size is not given, and: SLURM_STEP_TASKS_PER_NODE is 1(x7), one task on each node",
      "--ranks is not given, and: ",
    ],
  ],
  [
    "a distribution that shows in the numbers",
    { ...CONTROLLER, ...SLURM, SLURM_PROCID: "6" },
    ["make 4 the first rank of this host, but rank 6 by SLURM_PROCID (slurm) is number 1 here"],
  ],
  [
    "a node that is not on the list",
    { ...CONTROLLER, ...SLURM, SLURM_NODEID: "4" },
    ["SLURM_STEP_TASKS_PER_NODE has no node 4"],
  ],
  [
    "a list that is none",
    { ...CONTROLLER, ...SLURM, SLURM_STEP_TASKS_PER_NODE: "2(x99999)" },
    ["expected tasks per node like 2(x3),1"],
  ],
  [
    "a world size of one's own does not go with a launcher's ranks",
    { ...TORCHRUN, TIERFOLD_WORLD_SIZE: "16" },
    ["4-7 follows from a world size of 8 by WORLD_SIZE (torchrun), but --world-size is 16"],
  ],
  ["no number", { ...TORCHRUN, LOCAL_WORLD_SIZE: "four" }, ["LOCAL_WORLD_SIZE (torchrun)", "four"]],
];

for (const [name, env, texts] of refused) {
  Deno.test(`launcher's options, refused: ${name}`, () => {
    const run = () => parseRelayOptions(["--host", "a"], environment(env));
    const { message } = assertThrows(run, UsageError) as Error;
    for (const text of texts) assertStringIncludes(message, text);
  });
}

Deno.test("launcher's options: flags, variables and config file count before the launcher", () => {
  const args = ["--host", "a", "--ranks", "0", "--controller", "h:1"];
  const env = environment({ ...TORCHRUN, TIERFOLD_WORLD_SIZE: "3" });
  const { ranks, worldSize, controller } = parseRelayOptions(args, env);
  assertEquals([ranks, worldSize, controller], [[0], 3, { hostname: "h", port: 1 }]);
});

Deno.test("launcher's options: --print-config says that they come from the launcher", () => {
  const env = environment(TORCHRUN);
  const resolution = resolveOptions(relayProgram.table, ["--host", "a"], env);
  const { options } = configReport(relayProgram.table, resolution, env);
  assertEquals(options.ranks?.value, "4-7");
  assertEquals(options.ranks?.source, "launcher");
  assertEquals(options.worldSize?.source, "launcher");
  assertEquals(resolution.launched, [
    "--ranks 4-7 by RANK (torchrun), LOCAL_RANK (torchrun) and LOCAL_WORLD_SIZE (torchrun)",
    "--controller 10.0.0.1:7070 by MASTER_ADDR and MASTER_PORT",
    "--world-size 8 by WORLD_SIZE (torchrun)",
  ]);
});

Deno.test("launcher's options: a controller takes the world size", () => {
  assertEquals(parseControllerOptions([], environment(OPENMPI)).worldSize, 6);
  assertThrows(() => parseControllerOptions([], environment({})), UsageError);
});

Deno.test("launcher's options: a relay without a name for its host finds one", async () => {
  const report = async (env: Variables) => {
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--quiet", "--no-prompt", "--allow-env"],
        new URL("../../relay.ts", import.meta.url).pathname,
        "--print-config",
      ],
      env: { ...TORCHRUN, ...env },
    }).output();
    assert(stdout.length > 0, new TextDecoder().decode(stderr));
    return JSON.parse(new TextDecoder().decode(stdout)).options.host;
  };
  const rows: [Variables, string][] = [
    [{ SLURMD_NODENAME: "n7", GROUP_RANK: "1" }, "n7"],
    [{ PMIX_HOSTNAME: "m8" }, "m8"],
    [{ GROUP_RANK: "1" }, "group-1"],
  ];
  for (const [env, name] of rows) {
    const { value, source } = await report(env);
    assertEquals([value, source], [name, "launcher"]);
  }
});
