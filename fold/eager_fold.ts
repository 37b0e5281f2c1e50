/**
 * A fold that runs ahead of verification: pieces are summed and hashed while the frames still arrive.
 * Nothing of it leaves the process unless every frame in it turns out authentic and takes part.
 *
 * @module
 */
import type { RecordSealer } from "../frames/records.ts";
import type { FoldKernel } from "../kernels/kernel.ts";
import { encodeFrameHeaders, type FrameHeader } from "../wire/round_frame.ts";
import { invariant } from "../wire/errors.ts";
import type { HeldFrame } from "./frame_fold.ts";

/** Bytes of each frame summed at a time: with four frames about 0.3 ms, between two reads. */
const PIECE_BYTES = 1024 ** 2;

/** A frame of which `received` bytes are there. */
export interface ArrivingFrame extends HeldFrame {
  received: number;
}

/** One such fold. */
export class EagerFold {
  readonly #kernel: FoldKernel;
  readonly #frames: readonly ArrivingFrame[];
  readonly #out: Uint8Array<ArrayBufferLike>;
  readonly #sealer: RecordSealer;
  readonly #factor: number | undefined;
  /** The headers of the folded frame. */
  readonly header: FrameHeader;
  #tensor = 0;
  #done = 0;

  /**
   * @param kernel A kernel on the loop.
   * @param frames In the order of the fold, of one schema, f32 without left-out zeros.
   * @param out Where the folded frame goes.
   * @param sealer Signs it.
   * @param divide True at the root.
   */
  constructor(
    kernel: FoldKernel,
    frames: readonly ArrivingFrame[],
    out: Uint8Array<ArrayBufferLike>,
    sealer: RecordSealer,
    divide: boolean,
  ) {
    this.#kernel = kernel;
    this.#frames = frames;
    this.#out = out;
    this.#sealer = sealer;
    const first = frames[0]?.header;
    invariant(first !== undefined, "an eager fold of no frames");
    let weight = 0;
    for (const { header } of frames) weight += header.weight;
    this.header = { ...first, weight };
    this.#factor = divide && first.kind === "model" && weight > 0 ? 1 / weight : undefined;
    encodeFrameHeaders(out, this.header);
  }

  /** Sums and hashes as far as all frames have come. */
  advance(): void {
    let limit = Infinity;
    for (const { received } of this.#frames) limit = Math.min(limit, received);
    const { tensors } = this.header;
    while (this.#tensor < tensors.length) {
      const { at, nbytes } = tensors[this.#tensor]!;
      const from = at + this.#done;
      const to = Math.min(from + PIECE_BYTES, at + nbytes);
      if (to > limit) return;
      if (to > from) {
        const sum = this.#kernel.begin(this.#out.subarray(from, to));
        const adding = sum.add(this.#frames.map(({ bytes }) => bytes.subarray(from, to)));
        const ending = sum.finish(this.#factor);
        invariant(adding === undefined && ending === undefined, "an eager fold waits");
        this.#sealer.advance(to);
      }
      if (to === at + nbytes) {
        this.#tensor++;
        this.#done = 0;
      } else this.#done += to - from;
    }
  }

  /** Ends the fold, once all frames are there and authentic. */
  async finish(): Promise<FrameHeader> {
    this.advance();
    invariant(this.#tensor === this.header.tensors.length, "an eager fold ends before its frames");
    await this.#sealer.finish();
    return this.header;
  }

  /** Gives the fold up. */
  abandon(): void {
    this.#sealer.abandon();
  }
}
