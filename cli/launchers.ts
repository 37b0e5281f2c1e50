/**
 * What the launchers of training processes say in the environment: torchrun, Open MPI's mpirun and Slurm's
 * srun.
 *
 *     who        rank                   world size             local rank                   on this host
 *     torchrun   RANK                   WORLD_SIZE             LOCAL_RANK                   LOCAL_WORLD_SIZE
 *     openmpi    OMPI_COMM_WORLD_RANK   OMPI_COMM_WORLD_SIZE   OMPI_COMM_WORLD_LOCAL_RANK   ..._LOCAL_SIZE
 *     slurm      SLURM_PROCID           SLURM_NTASKS           SLURM_LOCALID                SLURM_TASKS_PER_NODE
 *
 * Slurm counts only with more than one task: every shell inside an allocation has its variables. Where two
 * launchers speak, as with mpirun inside a Slurm job, they must agree, or TIERFOLD_LAUNCHER says who counts.
 *
 * Names: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables,
 * https://www.open-mpi.org/faq/?category=running#mpi-environmental-variables,
 * https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
 *
 * @module
 */

import { MAX_WORLD_SIZE } from "../wire/limits.ts";
import type { ReadEnvironment } from "./options.ts";

/** What the environment says of this process's place cannot be used. */
export class LaunchError extends RangeError {
  /** The class of this error, for logs. */
  override readonly name = "LaunchError";
}

/** A number and who said it. */
export interface Said {
  readonly value: number;
  /** The variable or option that holds it, and of which launcher: `SLURM_PROCID (slurm)`. */
  readonly by: string;
}

/** What there is to know of a process's place. */
export interface Saying {
  readonly rank?: Said;
  readonly worldSize?: Said;
  readonly localRank?: Said;
  /** How many ranks run on this host. */
  readonly localSize?: Said;
}

/** The variable that decides between launchers; `none` shuts all of them out. */
export const LAUNCHER_VARIABLE = "TIERFOLD_LAUNCHER";

const FIELDS = ["rank", "worldSize", "localRank", "localSize"] as const;

/** What a field is called in messages. */
export const FIELD_WORDS: Readonly<Record<typeof FIELDS[number], string>> = {
  rank: "rank",
  worldSize: "world size",
  localRank: "local rank",
  localSize: "number of local ranks",
};

type Names = Partial<Record<typeof FIELDS[number], string>>;

const LAUNCHERS: Readonly<Record<string, Names>> = {
  torchrun: {
    rank: "RANK",
    worldSize: "WORLD_SIZE",
    localRank: "LOCAL_RANK",
    localSize: "LOCAL_WORLD_SIZE",
  },
  openmpi: {
    rank: "OMPI_COMM_WORLD_RANK",
    worldSize: "OMPI_COMM_WORLD_SIZE",
    localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
    localSize: "OMPI_COMM_WORLD_LOCAL_SIZE",
  },
  slurm: { rank: "SLURM_PROCID", worldSize: "SLURM_NTASKS", localRank: "SLURM_LOCALID" },
};

/**
 * What the launchers say, together.
 *
 * @throws {LaunchError} when two contradict each other, a variable holds no number, or TIERFOLD_LAUNCHER
 *   names one that says nothing.
 */
export function askLaunchers(env: ReadEnvironment): Saying {
  const chosen = env(LAUNCHER_VARIABLE) || undefined;
  if (chosen === "none") return {};
  if (chosen !== undefined) return askChosen(chosen, env);
  return Object.entries(LAUNCHERS)
    .map(([launcher, names]) => ask(launcher, names, env))
    .reduce((before, saying) => merge(before, saying, HOW_TO_DECIDE), {});
}

const HOW_TO_DECIDE = `set ${LAUNCHER_VARIABLE} to ${Object.keys(LAUNCHERS).join(", ")} or none ` +
  "to say who counts, or unset what is left over from elsewhere";

/**
 * Both of two sayings.
 *
 * @param remedy What to do about a contradiction.
 * @throws {LaunchError} when they contradict each other; it names both.
 */
export function merge(a: Saying, b: Saying, remedy: string): Saying {
  for (const field of FIELDS) {
    const [first, second] = [a[field], b[field]];
    if (first === undefined || second === undefined || first.value === second.value) continue;
    throw new LaunchError(
      `the ${FIELD_WORDS[field]} is ${first.value} by ${first.by} but ${second.value} by ` +
        `${second.by}; ${remedy}`,
    );
  }
  return { ...b, ...a };
}

/**
 * The number in a variable; undefined where it is unset or empty.
 *
 * @param whose Added to the variable's name in messages.
 * @throws {LaunchError} when it holds anything else.
 */
export function numberIn(env: ReadEnvironment, variable: string, whose: string): Said | undefined {
  const text = env(variable)?.trim() ?? "";
  if (text === "") return undefined;
  const by = `${variable}${whose}`;
  if (!/^\d{1,9}$/.test(text)) {
    throw new LaunchError(
      `${by}: expected a whole number, got ${JSON.stringify(text.slice(0, 80))}`,
    );
  }
  return { value: Number(text), by };
}

/**
 * Checks that a rank is below its world size.
 *
 * @throws {LaunchError} otherwise.
 */
export function expectPlace(rank: Said, worldSize: Said): void {
  const { value } = worldSize;
  if (value < 1 || value > MAX_WORLD_SIZE) {
    throw new LaunchError(
      `the world size is ${value} by ${worldSize.by}, expected 1 to ${MAX_WORLD_SIZE}`,
    );
  }
  if (rank.value >= value) {
    throw new LaunchError(
      `the rank is ${rank.value} by ${rank.by}, not below the world size of ${value} by ` +
        `${worldSize.by}`,
    );
  }
}

function askChosen(launcher: string, env: ReadEnvironment): Saying {
  const names = Object.hasOwn(LAUNCHERS, launcher) ? LAUNCHERS[launcher] : undefined;
  if (names === undefined) {
    throw new LaunchError(
      `${LAUNCHER_VARIABLE}: expected one of ${Object.keys(LAUNCHERS).join(", ")}, none, got ` +
        JSON.stringify(launcher.slice(0, 80)),
    );
  }
  const saying = ask(launcher, names, env);
  if (Object.keys(saying).length > 0) return saying;
  const more = launcher === "slurm" ? " with more than one task" : "";
  throw new LaunchError(
    `${LAUNCHER_VARIABLE} is ${launcher}, which says nothing here${more}: expected ` +
      `${names.rank} and ${names.worldSize}`,
  );
}

/** Whether Slurm is asked: by nobody's choice or by the operator's, and with more than one task. */
export function countsSlurm(env: ReadEnvironment): boolean {
  const chosen = env(LAUNCHER_VARIABLE) || "slurm";
  return chosen === "slurm" && severalTasks(env);
}

/** A lone task's variables are those of any shell in an allocation. */
function severalTasks(env: ReadEnvironment): boolean {
  return !["", "1"].includes(env("SLURM_NTASKS")?.trim() ?? "");
}

function ask(launcher: string, names: Names, env: ReadEnvironment): Saying {
  const saying: { -readonly [Field in keyof Saying]: Said } = {};
  if (launcher === "slurm" && !severalTasks(env)) return saying;
  for (const field of FIELDS) {
    const variable = names[field];
    const said = variable === undefined ? undefined : numberIn(env, variable, ` (${launcher})`);
    if (said !== undefined) saying[field] = said;
  }
  return saying;
}
