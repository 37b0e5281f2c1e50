/**
 * Folds the frames of a barrier into a slot, as they become ready.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { type RecordEnd, RecordSealer } from "../frames/records.ts";
import type { FrameSlot } from "../frames/slot.ts";
import { invariant, WireError } from "../wire/errors.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import type { FoldBarrier } from "./barrier.ts";
import { CompactFold, type FoldEnd, isCompact } from "./compact_fold.ts";
import { type ArrivingFrame, EagerFold } from "./eager_fold.ts";
import { FrameFold, type HeldFrame } from "./frame_fold.ts";
import { checkFoldable, schemaDifference, splitBySchema } from "./schema.ts";

/** A frame that does not fit the others of its round. */
export interface OddFrame {
  member: number;
  /** How it differs. */
  difference: string;
  /** A member whose frame it was compared with. */
  reference: number;
}

/**
 * How many frames a CPU kernel waits for before it folds ahead: four in one pass cost a third of four
 * passes. A GPU takes each as it comes, since the upload is what costs.
 */
const CPU_BATCH = 4;

/** The least frame that is folded while it arrives: below it there is nothing to gain. */
const EAGER_BYTES = 1024 ** 2;

/** How a round that is folded eagerly will end. */
export interface EagerEnd extends RecordEnd {
  divide: boolean;
}

/** The folding side of one tier's rounds. */
export class RoundFolder {
  readonly #kernel: FoldKernel;
  readonly #barrier: FoldBarrier;
  #out: FrameSlot;
  readonly #votes: (member: number) => number;
  readonly #arena: Arena;
  readonly #arrivals = new Map<number, ArrivingFrame>();
  #eager: { fold: EagerFold; members: readonly number[] } | undefined;
  #fold: FrameFold | undefined;
  #compact: CompactFold | undefined;

  /**
   * @param arena The memory in which the frames lie.
   * @param out Where the folded frame goes.
   * @param votes How many ranks stand behind a member, which decides between schemas.
   */
  constructor(
    arena: Arena,
    kernel: FoldKernel,
    barrier: FoldBarrier,
    out: FrameSlot,
    votes: (member: number) => number,
  ) {
    this.#arena = arena;
    this.#kernel = kernel;
    this.#barrier = barrier;
    this.#out = out;
    this.#votes = votes;
  }

  /**
   * Bytes of a member's frame are there that are not verified yet. Once frames of all awaited members
   * arrive, they are folded as far as they have come.
   *
   * @param end Gives how the round will end, or undefined while it must not be folded eagerly.
   */
  arriving(
    member: number,
    bytes: Uint8Array<ArrayBufferLike>,
    header: FrameHeader,
    received: number,
    end: () => EagerEnd | undefined,
  ): void {
    if (header.length < EAGER_BYTES || !this.#barrier.maySend(member)) return;
    const arrival = this.#arrivals.get(member);
    if (arrival?.header === header) arrival.received = received;
    else this.#arrivals.set(member, { bytes, header, received });
    if (this.#eager === undefined) this.#startEagerly(end);
    this.#eager?.fold.advance();
  }

  /** Forgets a frame that will not be delivered as it arrived. */
  disturbed(member: number): void {
    this.#arrivals.delete(member);
    if (this.#eager?.members.includes(member)) this.#giveUpEager();
  }

  /** Starts the round's fold afresh: a frame is to come before those that were folded ahead. */
  afresh(): void {
    this.#giveUpEager();
    this.#fold = undefined;
    this.#barrier.restart();
  }

  /** Folds into another slot from here on; only between rounds. */
  redirect(out: FrameSlot): void {
    invariant(this.#fold === undefined, "a fold in progress is redirected");
    this.#out = out;
  }

  /**
   * Folds ahead of the round's end what is ready and worth a pass; returns when nothing more is. Frames
   * that complete the round are left for {@link RoundFolder.finish}, and so are all frames of a round
   * that is folded compactly.
   */
  async absorb(): Promise<void> {
    while (!this.#eager && !this.#barrier.complete && !this.#isCompact()) {
      const batch = this.#kernel.wholeFromBytes < Infinity ? 1 : CPU_BATCH;
      const frames = this.#barrier.takeReady(batch);
      if (frames.length === 0) return;
      await this.#start(frames).add(frames);
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
   * Ends the fold of a complete round, which must not be contested, and signs it.
   *
   * @param record How the frame leaves.
   * @returns The headers of the folded frame; the whole record lies in the slot.
   */
  async finish(
    record: RecordEnd,
    end: FoldEnd,
  ): Promise<FrameHeader> {
    const { contributors } = this.#barrier;
    const eager = this.#eager;
    this.#arrivals.clear();
    if (
      eager !== undefined && !end.narrow && end.step === undefined &&
      eager.members.length === contributors.length &&
      eager.members.every((member, i) => member === contributors[i])
    ) {
      this.#eager = undefined;
      return await eager.fold.finish();
    }
    this.#giveUpEager();
    if (end.narrow || this.#isCompact()) return await this.#finishCompact(record, end);
    const frames = this.#barrier.takeReady();
    const fold = this.#start(frames);
    this.#fold = undefined;
    const sealer = new RecordSealer(this.#out, record);
    const header = await fold.finish(
      frames,
      end.divide,
      (to) => sealer.advance(to),
      end.step,
    );
    await sealer.finish();
    return header;
  }

  #startEagerly(getEnd: () => EagerEnd | undefined): void {
    const barrier = this.#barrier;
    if (this.#fold !== undefined || this.#kernel.wholeFromBytes < Infinity) return;
    const members = [...barrier.contributors, ...barrier.awaited].sort((a, b) => a - b);
    const frames: ArrivingFrame[] = [];
    for (const member of members) {
      const frame = barrier.holds(member)
        ? { ...barrier.frame(member), received: Infinity }
        : this.#arrivals.get(member);
      if (frame === undefined || !isPlain(frame.header)) return;
      if (frames[0] && schemaDifference(frame.header, frames[0].header) !== undefined) return;
      frames.push(frame);
    }
    const end = getEnd();
    if (end === undefined) return;
    this.#out.reserve(frames[0]!.header.length);
    const sealer = new RecordSealer(this.#out, end);
    const fold = new EagerFold(this.#kernel, frames, this.#out.frame, sealer, end.divide);
    this.#eager = { fold, members };
  }

  #giveUpEager(): void {
    this.#eager?.fold.abandon();
    this.#eager = undefined;
  }

  async #finishCompact(
    record: RecordEnd,
    end: FoldEnd,
  ): Promise<FrameHeader> {
    this.#fold = undefined;
    this.#compact ??= new CompactFold(this.#arena);
    const frames = this.#barrier.contributors.map((member) => this.#barrier.frame(member));
    let sealer: RecordSealer | undefined;
    const place = (length: number) => {
      this.#out.reserve(length);
      sealer = new RecordSealer(this.#out, record);
      return this.#out.frame;
    };
    const header = await this.#compact.fold(frames, end, place, (to) => sealer!.advance(to));
    await sealer!.finish();
    return header;
  }

  #isCompact(): boolean {
    return this.#barrier.contributors.some((member) =>
      isCompact(this.#barrier.frame(member).header)
    );
  }

  #start(frames: HeldFrame[]): FrameFold {
    if (this.#fold === undefined) {
      this.#out.reserve(frames[0]!.header.length);
      this.#fold = new FrameFold(this.#kernel, this.#out.frame);
    }
    return this.#fold;
  }
}

/** Whether a frame that is not verified yet could be folded as plain f32. */
function isPlain(header: FrameHeader): boolean {
  try {
    checkFoldable(header, "an arriving frame");
    return true;
  } catch (error) {
    if (error instanceof WireError) return false;
    throw error;
  }
}
