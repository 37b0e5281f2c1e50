/**
 * Where a rank finds its place: in what it is told, in Tierfold's own variables, or in those of the launcher
 * that started it. The Python client follows the same rules; tests/rank/launch_cases.json holds both to them.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { readEnvironment } from "../cli/environment.ts";
import {
  askLaunchers,
  expectPlace,
  LaunchError,
  merge,
  numberIn,
  type Said,
  type Saying,
} from "../cli/launchers.ts";

/** A rank's place in its session. */
export interface LaunchPlace {
  /** This rank's number, from 0. */
  readonly rank: number;
  /** How many ranks the session has. */
  readonly worldSize: number;
  /** This rank's number among those of its host, where somebody says so: which GPU to take. */
  readonly localRank?: number;
  /** The relay of this host, from TIERFOLD_RELAY. */
  readonly relay?: string;
  /** MASTER_ADDR, with MASTER_PORT behind it where that is set. */
  readonly master?: string;
  /** Who said so, for logs: `rank 1 by RANK (torchrun), world size 4 by WORLD_SIZE (torchrun)`. */
  readonly source: string;
}

/** What a caller knows already; it counts before the environment. */
export interface KnownPlace {
  /** This rank's number. */
  readonly rank?: number | undefined;
  /** How many ranks the session has. */
  readonly worldSize?: number | undefined;
}

/**
 * Finds this process's place: rank and world size that are given, else TIERFOLD_RANK and
 * TIERFOLD_WORLD_SIZE, else what torchrun (RANK, WORLD_SIZE), mpirun (OMPI_COMM_WORLD_RANK and _SIZE) or
 * srun (SLURM_PROCID, SLURM_NTASKS above 1) says.
 *
 * Rank and world size that are both known already are taken as they are, whatever a launcher says. Where
 * only one of them is, it must agree with the launcher, and where two launchers speak, they must agree with
 * each other; TIERFOLD_LAUNCHER (torchrun, openmpi, slurm or none) decides between them. Reading the
 * environment takes --allow-env.
 *
 * @param known What the caller knows better.
 * @param env Reads a variable; the process's own when left out.
 * @throws {RangeError} when nobody says where this rank stands, or two say different things; it names both.
 */
export function launchPlace(
  known: KnownPlace = {},
  env: (name: string) => string | undefined = readEnvironment,
): LaunchPlace {
  const own = ownSaying(known, env);
  // What is said in full needs no launcher, whose variables may be left over from something else.
  const whole = own.rank !== undefined && own.worldSize !== undefined;
  const remedy = "give both the rank and the world size, or neither";
  const { rank, worldSize, localRank } = whole ? own : merge(own, askLaunchers(env), remedy);
  if (rank === undefined || worldSize === undefined) {
    throw new LaunchError(missing(rank, worldSize));
  }
  expectPlace(rank, worldSize);
  const source =
    `rank ${rank.value} by ${rank.by}, world size ${worldSize.value} by ${worldSize.by}`;
  getLogger(["tierfold", "rank"]).info("the place of this rank: {source}", { source });
  return {
    rank: rank.value,
    worldSize: worldSize.value,
    ...(localRank === undefined ? {} : { localRank: localRank.value }),
    ...addresses(env),
    source,
  };
}

function ownSaying(known: KnownPlace, env: (name: string) => string | undefined): Saying {
  const rank = given(known.rank) ?? numberIn(env, "TIERFOLD_RANK", "");
  const worldSize = given(known.worldSize) ?? numberIn(env, "TIERFOLD_WORLD_SIZE", "");
  const localRank = numberIn(env, "TIERFOLD_LOCAL_RANK", "");
  return {
    ...(rank === undefined ? {} : { rank }),
    ...(worldSize === undefined ? {} : { worldSize }),
    ...(localRank === undefined ? {} : { localRank }),
  };
}

function given(value: number | undefined): Said | undefined {
  return value === undefined ? undefined : { value, by: "its options" };
}

function missing(rank: Said | undefined, worldSize: Said | undefined): string {
  const found = rank !== undefined
    ? `a rank (${rank.value} by ${rank.by}) but no world size`
    : worldSize !== undefined
    ? `a world size (${worldSize.value} by ${worldSize.by}) but no rank`
    : "neither rank nor world size";
  return `looking for this rank's place: ${found}; give them as options, set TIERFOLD_RANK and ` +
    "TIERFOLD_WORLD_SIZE, or start it with torchrun, mpirun or srun (variables are seen only with " +
    "--allow-env)";
}

function addresses(env: (name: string) => string | undefined): { relay?: string; master?: string } {
  const relay = env("TIERFOLD_RELAY")?.trim() ?? "";
  const host = env("MASTER_ADDR")?.trim() ?? "";
  const port = env("MASTER_PORT")?.trim() ?? "";
  const bracketed = host.includes(":") ? `[${host}]` : host;
  return {
    ...(relay === "" ? {} : { relay }),
    ...(host === "" ? {} : { master: port === "" ? bracketed : `${bracketed}:${port}` }),
  };
}
