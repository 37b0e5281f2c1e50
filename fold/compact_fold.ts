/**
 * The fold of frames that carry bf16 or leave zeros out, or whose result leaves as bf16 (protocol 3):
 * every value is widened to f32, summed in f32, and rounded at most once, at the end.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import { SimdKernel } from "../kernels/simd.ts";
import { Breather } from "../transport/breather.ts";
import {
  DTYPE_BF16,
  DTYPE_F32,
  elementCount,
  encodeFrameHeaders,
  type FrameHeader,
  layoutFrame,
} from "../wire/round_frame.ts";
import { invariant } from "../wire/errors.ts";
import type { FoldStep, HeldFrame } from "./frame_fold.ts";

/** Elements handled at a time: their sum stays in the second-level cache. */
const PIECE = 64 * 1024;

/** How a fold ends. */
export interface FoldEnd {
  /** True at the root: a Model frame is multiplied by f32(1 / W) when its total mass W is above 0. */
  divide: boolean;
  /** Whether the folded frame carries bf16; f32 otherwise. */
  narrow: boolean;
  /** What is done to the sums, divided where they are, before they are narrowed. */
  step?: FoldStep | undefined;
}

/** Folds compact frames, with scratch memory that it keeps. */
export class CompactFold {
  readonly #kernel: SimdKernel;
  readonly #sum: Uint8Array<ArrayBufferLike>;

  /** @param arena The memory in which the frames lie. */
  constructor(arena: Arena) {
    this.#kernel = SimdKernel.create(arena);
    this.#sum = arena.alloc(4 * PIECE);
  }

  /**
   * Folds whole frames, in the order given. They agree in shapes and dtypes; left-out zeros may differ.
   *
   * @param frames At least one.
   * @param place Gives the bytes for a frame of that many.
   * @param advance Told again and again up to where the frame is final, its headers first.
   * @returns The headers of the folded frame; its tag is the caller's.
   */
  async fold(
    frames: readonly HeldFrame[],
    { divide, narrow, step }: FoldEnd,
    place: (length: number) => Uint8Array<ArrayBufferLike>,
    advance: (end: number) => void,
  ): Promise<FrameHeader> {
    const first = frames[0]?.header;
    invariant(first !== undefined, "a fold of no frames");
    const dtype = narrow ? DTYPE_BF16 : DTYPE_F32;
    let weight = 0;
    for (const { header } of frames) weight += header.weight;
    const layout = layoutFrame(first.tensors.map(({ shape }) => ({ dtype, shape })));
    const header = { ...layout, kind: first.kind, weight: step?.weight ?? weight };
    const factor = divide && first.kind === "model" && weight > 0 ? 1 / weight : undefined;
    const out = place(header.length);
    encodeFrameHeaders(out, header);
    const breather = new Breather();
    const width = narrow ? 2 : 4;
    for (let tensor = 0; tensor < header.tensors.length; tensor++) {
      const { at, shape } = header.tensors[tensor]!;
      const elements = elementCount(shape);
      for (let from = 0; from < elements; from += PIECE) {
        const to = Math.min(from + PIECE, elements);
        const target = out.subarray(at + from * width, at + to * width);
        const sum = narrow ? this.#sum.subarray(0, 4 * (to - from)) : target;
        this.#sumPiece(frames, tensor, from, to, sum);
        step?.apply(sum, tensor, from);
        if (narrow) this.#kernel.scaleToBf16(target, sum, factor ?? 1);
        else if (factor !== undefined) this.#kernel.scale(sum, factor);
        advance(at + to * width);
        await breather.breathe();
      }
    }
    return header;
  }

  #sumPiece(
    frames: readonly HeldFrame[],
    tensor: number,
    from: number,
    to: number,
    sum: Uint8Array<ArrayBufferLike>,
  ): void {
    // Left-out zeros change no sum, since it starts from +0.0.
    const present = frames.filter(({ header }) => header.tensors[tensor]!.nbytes > 0);
    const runs = present.map(({ bytes, header }) => {
      const { at, dtype } = header.tensors[tensor]!;
      const width = dtype === DTYPE_F32 ? 4 : 2;
      return bytes.subarray(at + width * from, at + width * to);
    });
    if (present.every(({ header }) => header.tensors[tensor]!.dtype === DTYPE_F32)) {
      const adding = this.#kernel.begin(sum);
      adding.add(runs);
      adding.finish();
    } else {
      sum.fill(0);
      this.#kernel.addBf16(sum, runs);
    }
  }
}

/** Whether a frame carries bf16 or leaves zeros out. */
export function isCompact(header: FrameHeader): boolean {
  return header.tensors.some(({ dtype, nbytes, shape }) =>
    dtype !== DTYPE_F32 || (nbytes === 0 && elementCount(shape) > 0)
  );
}
