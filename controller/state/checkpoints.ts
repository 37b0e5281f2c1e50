/**
 * A directory of checkpoints, of which the newest are kept.
 *
 *     checkpoint-000000000120.safetensors            whole, and on the disk
 *     checkpoint-000000000130.safetensors.part       being written, or left over from a killed process
 *     checkpoint-000000000110.safetensors.damaged    put aside when it was found so
 *
 * A file gets its name once the disk has its bytes, and counts once the disk has its name: whenever the
 * process or the machine stops, every file of a whole name is whole.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { CheckpointError } from "./checkpoint_error.ts";
import {
  type CheckpointContents,
  type CheckpointSeal,
  type CheckpointTensor,
  readCheckpointFile,
  writeCheckpointFile,
} from "./checkpoint_file.ts";
import type { CheckpointInfo } from "./checkpoint_info.ts";

const NAME = /^checkpoint-(\d{12,16})\.safetensors$/;
const PART = /^checkpoint-\d{12,16}\.safetensors\.part$/;

/** A checkpoint on the disk. */
export interface StoredCheckpoint extends CheckpointSeal {
  readonly path: string;
}

/** Where a tensor's bytes go while a checkpoint is read. */
export type Place = (contents: CheckpointContents) => readonly Uint8Array<ArrayBufferLike>[];

/** The checkpoints of one training. One process at a time writes there. */
export class Checkpoints {
  readonly #directory: string;
  readonly #keep: number;
  readonly #log = getLogger(["tierfold", "controller", "state"]);

  private constructor(directory: string, keep: number) {
    this.#directory = directory;
    this.#keep = keep;
  }

  /**
   * Opens a directory, which is made when it is not there; leftovers of interrupted writes go.
   *
   * @param options.keep How many checkpoints stay, at least 1.
   */
  static async open(directory: string, options: { keep: number }): Promise<Checkpoints> {
    await Deno.mkdir(directory, { recursive: true });
    for await (const { name, isFile } of Deno.readDir(directory)) {
      if (isFile && PART.test(name)) await Deno.remove(`${directory}/${name}`);
    }
    return new Checkpoints(directory, options.keep);
  }

  /** The steps of which there are files, newest first. */
  steps(): Promise<number[]> {
    return checkpointSteps(this.#directory);
  }

  /**
   * Writes a checkpoint; when this has settled, it survives the process and the machine. The oldest ones
   * beyond those to keep are removed.
   *
   * @param written Called when no tensor's bytes are needed any more.
   * @throws {Error} as the system says; the checkpoints before it are untouched.
   */
  async write(
    tensors: readonly CheckpointTensor[],
    info: CheckpointInfo,
    written?: () => void,
  ): Promise<StoredCheckpoint> {
    const path = checkpointPath(this.#directory, info.step);
    const part = `${path}.part`;
    let seal: CheckpointSeal;
    try {
      seal = await writeCheckpointFile(part, tensors, info, written);
      await Deno.rename(part, path);
    } catch (error) {
      await Deno.remove(part).catch(() => {});
      throw error;
    }
    await this.#sync();
    await this.#prune(info.step);
    return { ...seal, path };
  }

  /**
   * Reads the newest checkpoint that is good. Damaged ones before it are told of and put aside.
   *
   * @param place See {@link readCheckpointFile}; called for every file that is tried.
   * @returns Undefined when there are no checkpoints at all.
   * @throws {CheckpointError} when there are, and none is good, or one cannot be judged.
   */
  async readLast(place: Place): Promise<(CheckpointContents & StoredCheckpoint) | undefined> {
    const { found, damaged } = await readNewest(this.#directory, place);
    for (const { path, error } of damaged) {
      this.#log.warn("{reason}; it is put aside, the one before it is taken", {
        reason: error.message,
      });
      await Deno.rename(path, `${path}.damaged`);
    }
    return found;
  }

  async #prune(newest: number): Promise<void> {
    const older = (await this.steps()).filter((step) => step <= newest);
    for (const step of older.slice(this.#keep)) {
      const path = checkpointPath(this.#directory, step);
      try {
        await Deno.remove(path);
      } catch (error) {
        this.#log.warn("removing the old checkpoint {path}: {reason}; it stays", {
          path,
          reason: error instanceof Error ? error.message : String(error),
        });
      }
    }
  }

  /** A new name is on the disk only once the directory is. */
  async #sync(): Promise<void> {
    if (Deno.build.os === "windows") return;
    using directory = await Deno.open(this.#directory, { read: true });
    await directory.sync();
  }
}

/** The steps of which a directory has files, newest first. */
export async function checkpointSteps(directory: string): Promise<number[]> {
  const steps: number[] = [];
  for await (const { name } of Deno.readDir(directory)) {
    const digits = NAME.exec(name)?.[1];
    if (digits !== undefined) steps.push(Number(digits));
  }
  return steps.sort((a, b) => b - a);
}

/**
 * Reads the newest good checkpoint of a directory.
 *
 * @returns It, undefined when the directory has none, and the damaged ones that are newer.
 * @throws {CheckpointError} when all that there are are damaged; or when one is of another version or may
 *   not be read, since nothing says that it is worse than those before it.
 */
export async function readNewest(directory: string, place: Place): Promise<{
  found: (CheckpointContents & StoredCheckpoint) | undefined;
  damaged: { path: string; error: CheckpointError }[];
}> {
  const damaged: { path: string; error: CheckpointError }[] = [];
  for (const step of await checkpointSteps(directory)) {
    const path = checkpointPath(directory, step);
    try {
      return { found: { ...await readCheckpointFile(path, place), path }, damaged };
    } catch (error) {
      if (!(error instanceof CheckpointError) || error.code !== "Damaged") throw error;
      damaged.push({ path, error });
    }
  }
  const [newest] = damaged;
  if (newest !== undefined) {
    throw new CheckpointError(
      "Damaged",
      directory,
      `none of its ${damaged.length} checkpoints is good; of the newest: ${newest.error.message}`,
    );
  }
  return { found: undefined, damaged };
}

function checkpointPath(directory: string, step: number): string {
  return `${directory}/checkpoint-${String(step).padStart(12, "0")}.safetensors`;
}
