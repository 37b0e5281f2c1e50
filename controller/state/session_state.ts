/**
 * What outlives a round: the consensus, the outer optimizer, and on the disk the ledger and checkpoints.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { formatRanks } from "../../cli/values.ts";
import type { FoldStep } from "../../fold/frame_fold.ts";
import type { FrameSlot } from "../../frames/slot.ts";
import type { Arena } from "../../kernels/arena.ts";
import type { Manifest } from "../../wire/manifest.ts";
import type { FrameHeader } from "../../wire/round_frame.ts";
import type { DurabilityView } from "../../observe/state.ts";
import type { ClosedRound, GoneRanks, RoundHooks } from "../hooks.ts";
import type { CheckpointTensor } from "./checkpoint_file.ts";
import type { CheckpointInfo } from "./checkpoint_info.ts";
import { Consensus, type Group, MAX_GROUPS, valueCount } from "./consensus.ts";
import type { LedgerHost } from "./ledger.ts";
import { OuterOptimizer, type OuterOptions } from "./outer.ts";
import { resultDigest } from "./result_digest.ts";
import { fits, restoreSnapshot, snapshotTensors } from "./snapshot.ts";
import { StateDirectory } from "./state_directory.ts";

/** What is kept, and how. */
export interface StateOptions {
  readonly worldSize: number;
  readonly outer: OuterOptions;
  /** Names for checkpoints. */
  readonly manifest?: Manifest | undefined;
  /** Where the ledger and checkpoints are; without it nothing goes to the disk. */
  readonly directory?: string | undefined;
  /** Write a checkpoint every so many steps, at least 1. */
  readonly checkpointEvery: number;
  /** How many checkpoints stay, at least 1. */
  readonly checkpointKeep: number;
  /** Whether to go on from the last good checkpoint, where there is one. */
  readonly resume: boolean;
}

/** What a checkpoint is made of. */
interface Snapshot {
  readonly tensors: readonly CheckpointTensor[];
  readonly info: Omit<CheckpointInfo, "session">;
  readonly version: number;
}

/** One session's. */
export class SessionState implements RoundHooks {
  readonly #options: StateOptions;
  readonly #consensus: Consensus;
  readonly #disk: StateDirectory | undefined;
  readonly #log = getLogger(["tierfold", "controller", "state"]);
  /** Frames that this round has, by host. */
  readonly #delivered = new Map<number, LedgerHost>();
  readonly #pending = new Set<Promise<void>>();
  readonly #warned = new Set<string>();
  #outer: OuterOptimizer | undefined;
  /** Settles when a checkpoint does not read the optimizer's state any more. */
  #outerFree: Promise<unknown> = Promise.resolve();
  #step: number;
  #round = 0;
  /** Whether ranks may still ask for the consensus that was resumed. */
  #asked: boolean;
  #started = 0;
  /** Whether the optimizer is ahead of the consensus, which is wrong to keep. */
  #torn = false;
  #due = false;
  #writing = false;
  /** Whether every group has come since the first one last did. */
  #whole = true;
  /** Told of checkpoints that were written, and of those that could not be. */
  onCheckpoint: ((level: "info" | "error", text: string) => void) | undefined;
  /** The last checkpoint that the disk has. */
  #checkpoint: DurabilityView["checkpoint"] = null;
  /** What went wrong with the last checkpoint. */
  #failure: string | null = null;
  /** Counts results that were kept. */
  #version = 0;
  #savedVersion = 0;

  private constructor(
    options: StateOptions,
    consensus: Consensus,
    disk: StateDirectory | undefined,
    resumed: { step: number; outer: OuterOptimizer } | undefined,
  ) {
    this.#options = options;
    this.#consensus = consensus;
    this.#disk = disk;
    this.#outer = resumed?.outer;
    this.#step = resumed?.step ?? 0;
    this.#asked = resumed !== undefined;
  }

  /**
   * Opens the directory, and goes on from its last good checkpoint when that is wanted.
   *
   * @param arena The memory of the controller's frames.
   * @throws {UsageError} when the directory holds another training, is in use, or the checkpoint does not
   *   fit the options.
   * @throws {CheckpointError} when there are checkpoints, and none is good.
   * @throws {LedgerError} when the ledger cannot be opened.
   */
  static async open(options: StateOptions, arena: Arena): Promise<SessionState> {
    const consensus = new Consensus(arena);
    const { directory } = options;
    if (directory === undefined) return new SessionState(options, consensus, undefined, undefined);
    let restored: ReturnType<typeof restoreSnapshot> | undefined;
    const disk = await StateDirectory.open(directory, options, (contents) => {
      restored = restoreSnapshot(contents, consensus, arena, options.outer);
      return restored.places;
    });
    if (restored === undefined) return new SessionState(options, consensus, disk, undefined);
    restored.finish();
    const { outer } = restored;
    return new SessionState(options, consensus, disk, { step: disk.resumedStep!, outer });
  }

  /** What is kept, for those who watch. */
  get durability(): DurabilityView {
    return {
      step: this.#step,
      resumedStep: this.#disk?.resumedStep ?? null,
      checkpoint: this.#checkpoint,
      error: this.#failure,
    };
  }

  get wide(): boolean {
    return this.#options.outer.name !== "average";
  }

  delivered(key: number, name: string, ranks: Iterable<number>, mass: number): void {
    if (this.#delivered.size === 0) this.#started = performance.now();
    const list = formatRanks([...ranks].sort((a, b) => a - b));
    this.#delivered.set(key, { key, name, ranks: list, mass });
  }

  async folding(header: FrameHeader, mass: number): Promise<FoldStep | undefined> {
    const group = this.#consensus.find(header);
    if (group === undefined) return undefined;
    if (header.kind === "control") return this.#answer(group, mass);
    const outer = this.#outer;
    if (mass === 0 || outer === undefined || !this.wide || group !== this.#consensus.groups[0]) {
      return undefined;
    }
    await this.#outerFree;
    this.#torn = true;
    const starts: number[] = [];
    let values = 0;
    for (const { nbytes } of group.header.tensors) {
      starts.push(values);
      values += nbytes / 4;
    }
    return {
      apply: (run, tensor, from) =>
        outer.step(run, group.run(tensor, from, run.length), starts[tensor]! + from),
    };
  }

  async closed({ round, header, out, hosts, sent }: ClosedRound): Promise<FrameSlot> {
    const left = sent.catch(() => {});
    const durationMs = performance.now() - this.#started;
    this.#round = round;
    const accepted = hosts.flatMap((key) => this.#delivered.get(key) ?? []);
    this.#delivered.clear();
    const { kind, weight: mass } = header;
    const entry = { round, kind, mass, durationMs, hosts: accepted };
    if (kind === "control" || mass === 0) {
      this.#disk?.ledger.round({ ...entry, step: undefined, sha256: undefined });
      return out;
    }
    this.#asked = false;
    const { groups } = this.#consensus;
    if (
      this.#disk === undefined && groups.length > 0 && this.#consensus.find(header) !== groups[0]
    ) {
      return out;
    }
    const { group, out: next } = await this.#consensus.keep(header, out);
    this.#torn = false;
    if (group !== undefined) this.#version++;
    const first = group !== undefined && group === groups[0];
    if (first) {
      this.#step++;
      this.#outer ??= new OuterOptimizer(this.#options.outer, valueCount(header));
    }
    if (group === undefined) {
      this.#once("rounds of more than {limit} lists of shapes: the others are not kept", {
        limit: MAX_GROUPS,
      });
    }
    const disk = this.#disk;
    if (disk === undefined) return next;
    const step = first ? this.#step : undefined;
    if (group === undefined) disk.ledger.round({ ...entry, step, sha256: undefined });
    else {
      const { header: kept, bytes } = group;
      const digest = left.then(() => resultDigest(kept, bytes));
      group.hold(digest);
      this.#track(digest.then((sha256) => disk.ledger.round({ ...entry, step, sha256 })));
    }
    this.#save(left, first, group);
    return next;
  }

  gone({ round, host, ranks, lost, reason }: GoneRanks): void {
    this.#disk?.ledger.exit({ round, host, ranks: formatRanks(ranks), lost, reason });
  }

  /**
   * Writes the last consensus and ends the ledger's session.
   *
   * @param ending How the session ended.
   * @throws {Error} when the last consensus could not be written.
   */
  async end(ending: string): Promise<void> {
    const disk = this.#disk;
    if (disk === undefined) return;
    try {
      await Promise.all(this.#pending);
      if (this.#torn) {
        this.#log.warn(
          "the session ended within an outer step: its last checkpoint stays the last",
        );
      } else if (this.#version > this.#savedVersion) await this.#write(disk, this.#snapshot());
    } finally {
      disk.close(ending);
    }
  }

  /** Hands out the consensus that was resumed, in a Control round in which nobody has anything. */
  #answer(group: Group, mass: number): FoldStep | undefined {
    if (!this.#asked || mass > 0) return undefined;
    this.#log.info("the ranks ask for the consensus of step {step}", { step: this.#step });
    return {
      weight: this.#step,
      apply: (run, tensor, from) => run.set(group.run(tensor, from, run.length)),
    };
  }

  /** Writes a checkpoint in the background, when one is due and all groups are of one window. */
  #save(sent: Promise<unknown>, first: boolean, group: Group | undefined): void {
    const { groups } = this.#consensus;
    const last = group === groups.at(-1);
    // A list that did not come in the last window must not hold checkpoints up for ever.
    const late = first && this.#due && !this.#whole;
    if (first) this.#whole = false;
    if (last) this.#whole = true;
    if (first && this.#step % this.#options.checkpointEvery === 0) this.#due = true;
    if (!this.#due || this.#writing || !(last || late)) return;
    this.#due = false;
    this.#writing = true;
    const written = Promise.withResolvers<void>();
    for (const each of groups) each.hold(written.promise);
    this.#outerFree = written.promise;
    const disk = this.#disk!;
    const snapshot = this.#snapshot();
    this.#track(
      sent.then(() => this.#write(disk, snapshot, written.resolve)).catch((error) => {
        this.#due = true;
        const reason = error instanceof Error ? error.message : String(error);
        this.#log.error(
          "writing the checkpoint of a step: {reason}; rounds go on, and the next one is tried",
          { reason },
        );
        this.#failure = reason;
        this.onCheckpoint?.("error", `writing the checkpoint of a step: ${reason}`);
      }).finally(() => {
        written.resolve();
        this.#writing = false;
      }),
    );
  }

  /** The consensus as it is now; its bytes stay where they lie. */
  #snapshot(): Snapshot {
    const { outer, manifest } = this.#options;
    const { groups } = this.#consensus;
    const counts = groups.map(({ header }) => header.tensors.length);
    if (manifest !== undefined && !fits(counts, manifest)) {
      this.#once("the manifest does not name {counts} tensors: numbers serve as names", {
        counts: counts.join(" and "),
      });
    }
    return {
      tensors: snapshotTensors(this.#consensus, this.wide ? this.#outer : undefined, manifest),
      info: { step: this.#step, round: this.#round, outer, groups: counts },
      version: this.#version,
    };
  }

  async #write(
    disk: StateDirectory,
    { tensors, info, version }: Snapshot,
    written: () => void = () => {},
  ): Promise<void> {
    const { bytes } = await disk.write(tensors, info, written);
    this.#savedVersion = version;
    const { step, round } = info;
    this.#checkpoint = { step, round, atMs: Date.now(), bytes };
    this.#failure = null;
    this.onCheckpoint?.("info", `the checkpoint of step ${step} is on the disk, ${bytes} bytes`);
  }

  /** Warns, but not round after round. */
  #once(message: string, properties: Record<string, unknown>): void {
    if (this.#warned.has(message)) return;
    this.#warned.add(message);
    this.#log.warn(message, properties);
  }

  #track(task: Promise<void>): void {
    const tracked: Promise<void> = task.finally(() => this.#pending.delete(tracked));
    this.#pending.add(tracked);
  }
}

/** Runs a session, and ends its state however that ends; the session's own error counts first. */
export async function keeping<T>(
  state: SessionState | undefined,
  session: () => Promise<T>,
): Promise<T> {
  let outcome: T;
  try {
    outcome = await session();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    await state?.end(reason).catch((failure) => {
      getLogger(["tierfold", "controller", "state"]).error("{reason}", {
        reason: failure instanceof Error ? failure.message : String(failure),
      });
    });
    throw error;
  }
  await state?.end("every rank has left");
  return outcome;
}
