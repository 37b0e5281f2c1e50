/**
 * The fold of frames into one: element-wise sums in the order given, masses in f64 in the same order.
 * Only the root divides.
 *
 * @module
 */
import type { Accumulation, F32Bytes, FoldKernel } from "../kernels/kernel.ts";
import { Breather } from "../transport/breather.ts";
import { encodeFrameHeaders, type FrameHeader } from "../wire/round_frame.ts";
import { invariant } from "../wire/errors.ts";

/** A verified frame: its bytes, and what its headers say. */
export interface HeldFrame {
  bytes: Uint8Array<ArrayBufferLike>;
  header: FrameHeader;
}

/**
 * The longest run that a kernel on the loop sums at once: about 2 ms of work, so that the loop keeps
 * turning. Kernels that work elsewhere take a tensor whole.
 */
const PIECE_BYTES = 4 * 1024 ** 2;

/** What is done to a fold's result before it is signed. */
export interface FoldStep {
  /** The mass that the result says instead of that of the sum. */
  readonly weight?: number;
  /**
   * Changes values in place, each exactly once.
   *
   * @param values f32 values as they would leave, divided where they are.
   * @param tensor The index of their tensor.
   * @param from The index of the first one in it.
   */
  apply(values: F32Bytes, tensor: number, from: number): void;
}

interface Piece {
  /** Offset in the frame, the same in every frame of a schema. */
  at: number;
  nbytes: number;
  tensor: number;
  /** Index of its first value in the tensor. */
  from: number;
  sum: Accumulation;
}

/**
 * One fold in progress. Frames are added in order; their bytes must stay unchanged until `finish` has
 * settled. All frames must agree in schema (see fold/schema.ts), which the caller has checked.
 */
export class FrameFold {
  readonly #kernel: FoldKernel;
  readonly #out: Uint8Array<ArrayBufferLike>;
  #first: FrameHeader | undefined;
  #pieces: Piece[] = [];
  #weight = 0;

  /**
   * @param kernel Does the sums.
   * @param out Where the folded frame goes; as long as each of the frames.
   */
  constructor(kernel: FoldKernel, out: Uint8Array<ArrayBufferLike>) {
    this.#kernel = kernel;
    this.#out = out;
  }

  /** The mass folded so far. */
  get weight(): number {
    return this.#weight;
  }

  /** Adds frames, one after another, ahead of the fold's end. */
  async add(frames: readonly HeldFrame[]): Promise<void> {
    this.#take(frames);
    const breather = new Breather();
    for (const piece of this.#pieces) {
      await addTo(piece, frames);
      await breather.breathe();
    }
  }

  /**
   * Adds the last frames and ends the fold, piece by piece, so that each piece passes through the caches
   * once. The frame's headers are written too; its tag is the caller's.
   *
   * @param frames The last frames; may be none when some were added before.
   * @param divide True at the root: a Model frame is multiplied by f32(1 / W) when its total mass W is
   *   above 0.
   * @param advance Told again and again up to where the frame is final, while it is still hot.
   * @param step What is done to the sums, divided where they are.
   * @returns The headers of the folded frame.
   */
  async finish(
    frames: readonly HeldFrame[],
    divide: boolean,
    advance?: (end: number) => void,
    step?: FoldStep,
  ): Promise<FrameHeader> {
    this.#take(frames);
    const first = this.#first;
    invariant(first !== undefined, "a fold of no frames");
    const factor = divide && first.kind === "model" && this.#weight > 0
      ? 1 / this.#weight
      : undefined;
    const header: FrameHeader = { ...first, weight: step?.weight ?? this.#weight };
    encodeFrameHeaders(this.#out, header);
    const breather = new Breather();
    for (const piece of this.#pieces) {
      await addTo(piece, frames);
      await piece.sum.finish(factor);
      step?.apply(
        this.#out.subarray(piece.at, piece.at + piece.nbytes),
        piece.tensor,
        piece.from,
      );
      advance?.(piece.at + piece.nbytes);
      await breather.breathe();
    }
    return header;
  }

  #take(frames: readonly HeldFrame[]): void {
    const head = frames[0];
    if (head !== undefined && this.#first === undefined) this.#start(head.header);
    for (const { header } of frames) {
      invariant(header.length === this.#out.length, "frames of one fold have one length");
      this.#weight += header.weight;
    }
  }

  #start(first: FrameHeader): void {
    this.#first = first;
    for (let index = 0; index < first.tensors.length; index++) {
      const tensor = first.tensors[index]!;
      const longest = tensor.nbytes >= this.#kernel.wholeFromBytes ? tensor.nbytes : PIECE_BYTES;
      for (let done = 0; done < tensor.nbytes; done += longest) {
        const at = tensor.at + done;
        const nbytes = Math.min(longest, tensor.nbytes - done);
        const sum = this.#kernel.begin(this.#out.subarray(at, at + nbytes));
        this.#pieces.push({ at, nbytes, tensor: index, from: done / 4, sum });
      }
    }
  }
}

function addTo({ at, nbytes, sum }: Piece, frames: readonly HeldFrame[]): void | Promise<void> {
  if (frames.length === 0) return;
  return sum.add(frames.map(({ bytes }) => bytes.subarray(at, at + nbytes)));
}
