/**
 * Folds the frames of a barrier into a slot, as they become ready.
 *
 * @module
 */
import type { FoldKernel } from "../kernels/kernel.ts";
import type { FrameSlot } from "../frames/slot.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import type { FoldBarrier } from "./barrier.ts";
import { FrameFold, type HeldFrame } from "./frame_fold.ts";
import { splitBySchema } from "./schema.ts";

/** A frame that does not fit the others of its round. */
export interface OddFrame {
  member: number;
  /** How it differs. */
  difference: string;
  /** A member whose frame it was compared with. */
  reference: number;
}

/** The folding side of one tier's rounds. */
export class RoundFolder {
  readonly #kernel: FoldKernel;
  readonly #barrier: FoldBarrier;
  readonly #out: FrameSlot;
  readonly #votes: (member: number) => number;
  #fold: FrameFold | undefined;

  /**
   * @param out Where the folded frame goes.
   * @param votes How many ranks stand behind a member, which decides between schemas.
   */
  constructor(
    kernel: FoldKernel,
    barrier: FoldBarrier,
    out: FrameSlot,
    votes: (member: number) => number,
  ) {
    this.#kernel = kernel;
    this.#barrier = barrier;
    this.#out = out;
    this.#votes = votes;
  }

  /** Folds what is ready; returns when nothing more is. */
  async absorb(): Promise<void> {
    for (;;) {
      const frames = this.#barrier.takeReady();
      if (frames.length === 0) return;
      await this.#add(frames);
    }
  }

  /**
   * Where frames of several schemas came: keeps those of the schema that most ranks sent, discards the
   * others and starts the fold afresh.
   *
   * @returns The frames that were discarded; they are no longer in the barrier's round.
   */
  settle(): OddFrame[] {
    const barrier = this.#barrier;
    if (!barrier.contested) return [];
    const members = barrier.contributors;
    const { kept, odd } = splitBySchema(
      members.map((member) => barrier.frame(member).header),
      members.map(this.#votes),
    );
    const reference = members[kept[0]!]!;
    for (const { index } of odd) barrier.discard(members[index]!);
    barrier.settle();
    this.#fold = undefined;
    return odd.map(({ index, difference }) => ({
      member: members[index]!,
      difference,
      reference,
    }));
  }

  /**
   * Ends the fold of a complete round, which must not be contested.
   *
   * @param divide True at the root.
   * @returns The headers of the folded frame, which lies in the slot; only its tag is missing.
   */
  async finish(divide: boolean): Promise<FrameHeader> {
    await this.absorb();
    const fold = this.#fold!;
    this.#fold = undefined;
    return await fold.finish(divide);
  }

  async #add(frames: HeldFrame[]): Promise<void> {
    if (this.#fold === undefined) {
      this.#out.reserve(frames[0]!.header.length);
      this.#fold = new FrameFold(this.#kernel, this.#out.frame);
    }
    await this.#fold.add(frames);
  }
}
