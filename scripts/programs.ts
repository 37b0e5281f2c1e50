/**
 * The programs that are built, and what each may do.
 *
 * @module
 */

/** One program. */
export interface BuiltProgram {
  /** The name of its binary. */
  readonly name: string;
  /** Its entry, from the root of the repository. */
  readonly entry: string;
  /** Deno's permissions: what its options can ask for, and no more. */
  readonly permissions: readonly string[];
}

/** Where launchers of ranks say which rank a process is; see cli/launchers.ts. */
const LAUNCHERS = "RANK,WORLD_SIZE,LOCAL_*,GROUP_RANK,MASTER_*,TORCHELASTIC_*," +
  "OMPI_*,PMIX_HOSTNAME,SLURM_*,SLURMD_NODENAME";

/** All of them. */
export const PROGRAMS: readonly BuiltProgram[] = [
  {
    name: "tierfold-controller",
    entry: "controller.ts",
    // Writes checkpoints, the ledger and gradient blocks where it is told to.
    permissions: [
      "--allow-net",
      "--allow-read",
      "--allow-write",
      "--allow-env=TIERFOLD_*,AXIOM_*",
    ],
  },
  {
    name: "tierfold-relay",
    entry: "relay.ts",
    permissions: [
      "--allow-net",
      "--allow-read",
      `--allow-env=TIERFOLD_*,${LAUNCHERS}`,
      "--allow-sys=hostname",
    ],
  },
];

/** What `deno compile` calls the machines that binaries are made for. */
export const TARGETS = [
  "x86_64-unknown-linux-gnu",
  "aarch64-unknown-linux-gnu",
  "x86_64-apple-darwin",
  "aarch64-apple-darwin",
  "x86_64-pc-windows-msvc",
] as const;
