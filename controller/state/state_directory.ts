/**
 * A training's directory on the disk.
 *
 *     DIR/lock              held by the controller that uses it
 *     DIR/ledger.sqlite     see ledger.ts
 *     DIR/checkpoints/      see checkpoints.ts
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { UsageError } from "../../cli/spec.ts";
import type { CheckpointTensor } from "./checkpoint_file.ts";
import type { CheckpointInfo } from "./checkpoint_info.ts";
import { Checkpoints, type Place } from "./checkpoints.ts";
import { Ledger } from "./ledger.ts";
import type { OuterOptions } from "./outer.ts";

/** How a directory is used. */
export interface StateDirectoryOptions {
  readonly worldSize: number;
  readonly outer: OuterOptions;
  readonly checkpointKeep: number;
  readonly resume: boolean;
}

/** An open directory, of which this process is the only user. */
export class StateDirectory {
  /** This session's ledger. */
  readonly ledger: Ledger;
  /** The step of the checkpoint that was read; undefined when none was. */
  readonly resumedStep: number | undefined;
  readonly #checkpoints: Checkpoints;
  readonly #lock: Deno.FsFile;
  readonly #log = getLogger(["tierfold", "controller", "state"]);

  private constructor(
    checkpoints: Checkpoints,
    lock: Deno.FsFile,
    ledger: Ledger,
    resumedStep: number | undefined,
  ) {
    this.#checkpoints = checkpoints;
    this.#lock = lock;
    this.ledger = ledger;
    this.resumedStep = resumedStep;
  }

  /**
   * Opens a directory, which is made when it is not there.
   *
   * @param place Called with the last good checkpoint when the session goes on from one.
   * @throws {UsageError} when it is in use, or holds what the options do not expect.
   * @throws {CheckpointError} when there are checkpoints, and none is good.
   * @throws {LedgerError} when the ledger cannot be opened.
   */
  static async open(
    directory: string,
    options: StateDirectoryOptions,
    place: Place,
  ): Promise<StateDirectory> {
    await Deno.mkdir(directory, { recursive: true });
    const lock = await takeLock(directory);
    try {
      const checkpoints = await Checkpoints.open(`${directory}/checkpoints`, {
        keep: options.checkpointKeep,
      });
      const resumedStep = await resume(directory, checkpoints, options, place);
      const { worldSize, outer } = options;
      const ledger = Ledger.open(`${directory}/ledger.sqlite`, {
        worldSize,
        outer: JSON.stringify(outer),
        resumedStep,
      });
      return new StateDirectory(checkpoints, lock, ledger, resumedStep);
    } catch (error) {
      lock.close();
      throw error;
    }
  }

  /**
   * Writes a checkpoint and takes it down.
   *
   * @param written Called when the tensors' bytes are not needed any more.
   * @returns Its size.
   * @throws {Error} as the system says.
   */
  async write(
    tensors: readonly CheckpointTensor[],
    info: Omit<CheckpointInfo, "session">,
    written: () => void,
  ): Promise<{ bytes: number }> {
    const { step, round } = info;
    const session = this.ledger.session;
    const stored = await this.#checkpoints.write(tensors, { ...info, session }, written);
    this.ledger.checkpoint({ ...stored, step, round });
    this.#log.info("the checkpoint of step {step} is on the disk: {path}, {bytes} bytes", {
      step,
      path: stored.path,
      bytes: stored.bytes,
    });
    return { bytes: stored.bytes };
  }

  /** Ends the ledger's session and lets go of the directory. */
  close(ending: string): void {
    this.ledger.close(ending);
    this.#lock.close();
  }
}

/** The system lets go of the lock when this process ends, however it ends. */
async function takeLock(directory: string): Promise<Deno.FsFile> {
  const lock = await Deno.open(`${directory}/lock`, { write: true, create: true });
  if (await lock.tryLock(true)) return lock;
  lock.close();
  throw new UsageError([`--state ${directory}: another controller uses this directory`]);
}

async function resume(
  directory: string,
  checkpoints: Checkpoints,
  options: StateDirectoryOptions,
  place: Place,
): Promise<number | undefined> {
  const log = getLogger(["tierfold", "controller", "state"]);
  if (!options.resume) {
    const [newest] = await checkpoints.steps();
    if (newest === undefined) return undefined;
    throw new UsageError([
      `--state ${directory}: it holds checkpoints up to step ${newest}; go on from the last good one ` +
      "with --resume, or give another directory",
    ]);
  }
  const last = await checkpoints.readLast((contents) => {
    expectSameOuter(contents.info, options.outer);
    return place(contents);
  });
  if (last === undefined) {
    log.info("{directory} has no checkpoint yet: training starts afresh", { directory });
    return undefined;
  }
  log.info("going on from step {step}: {path}", { step: last.info.step, path: last.path });
  return last.info.step;
}

/** Only plain averages, which have no state, go over into another optimizer. */
function expectSameOuter({ outer, step }: CheckpointInfo, wanted: OuterOptions): void {
  if (outer.name === "average" || outer.name === wanted.name) return;
  throw new UsageError([
    `--outer-optimizer ${wanted.name}: the checkpoint of step ${step} has the state of ${outer.name}, ` +
    "which would be lost; go on with that one, or give another --state",
  ]);
}
