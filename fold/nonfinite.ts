/**
 * What becomes of NaN and infinities in a rank's frame: one of them would spread to every rank.
 *
 * @module
 */
import type { Arena } from "../kernels/arena.ts";
import { SimdKernel } from "../kernels/simd.ts";
import { Breather } from "../transport/breather.ts";
import { WireError } from "../wire/errors.ts";
import { DTYPE_BF16, type TensorHeader } from "../wire/round_frame.ts";
import type { HeldFrame } from "./frame_fold.ts";

/** The policies by name. */
export const NONFINITE_POLICIES = ["refuse", "zero", "allow"] as const;

/**
 * `refuse`: the frame costs its sender the connection, and the round goes on without it. `zero`: each
 * such value becomes +0.0, at the frame's full mass. `allow`: nobody looks.
 */
export type NonFinitePolicy = typeof NONFINITE_POLICIES[number];

/** Bytes looked at between turns of the loop: below 1 ms. */
const PIECE_BYTES = 4 * 1024 ** 2;
/** Exponent bits of an f32 and, in its upper half, of a bf16. */
const EXPONENT = 0x7f80_0000;

/** Looks through frames before they are folded. */
export class NonFiniteScreen {
  readonly #policy: NonFinitePolicy;
  readonly #kernel: SimdKernel;
  readonly #names: (tensor: number, count: number) => string | undefined;

  /**
   * @param arena The memory in which the frames lie.
   * @param names Gives the name of a tensor among `count`, where it is known.
   */
  constructor(
    arena: Arena,
    policy: NonFinitePolicy,
    names: (tensor: number, count: number) => string | undefined = () => undefined,
  ) {
    this.#policy = policy;
    this.#kernel = SimdKernel.create(arena);
    this.#names = names;
  }

  /**
   * Looks through a verified frame whose dtypes and sizes were checked; its bytes must stay in place
   * until this has settled.
   *
   * @param who Whose frame it is, for the error: "rank 3".
   * @returns How many values were replaced by +0.0.
   * @throws {WireError} naming the tensor, element and value, when the policy is to refuse them.
   */
  async screen({ bytes, header }: HeldFrame, who: string): Promise<number> {
    if (this.#policy === "allow") return 0;
    const breather = new Breather();
    let replaced = 0;
    for (let index = 0; index < header.tensors.length; index++) {
      const tensor = header.tensors[index]!;
      const width = tensor.dtype === DTYPE_BF16 ? 2 : 4;
      for (let from = 0; from < tensor.nbytes; from += PIECE_BYTES) {
        const to = Math.min(from + PIECE_BYTES, tensor.nbytes);
        const run = bytes.subarray(tensor.at + from, tensor.at + to);
        const found = this.#first(run, width);
        if (found >= 0) {
          if (this.#policy === "refuse") {
            const element = from / width + found;
            const value = valueAt(run, found, width);
            throw this.#refusal(who, index, header.tensors, element, value);
          }
          replaced += clear(run, found, width);
        }
        const turn = breather.breathe();
        if (turn !== undefined) await turn;
      }
    }
    return replaced;
  }

  /** The index of the first value that is not finite, or -1. */
  #first(run: Uint8Array<ArrayBufferLike>, width: 2 | 4): number {
    return width === 4 ? this.#kernel.firstNonFinite(run) : this.#kernel.firstNonFiniteBf16(run);
  }

  #refusal(
    who: string,
    index: number,
    tensors: readonly TensorHeader[],
    element: number,
    value: number,
  ): WireError {
    const name = this.#names(index, tensors.length);
    const { shape } = tensors[index]!;
    return new WireError(
      "nonfinite",
      "connection",
      `checking the frame of ${who}: tensor ${index}${
        name === undefined ? "" : ` (${JSON.stringify(name)})`
      } of shape [${
        shape.join(", ")
      }] has ${value} at element ${element}, expected finite values ` +
        `only; the round goes on without ${who}`,
    );
  }
}

function view(run: Uint8Array<ArrayBufferLike>): DataView {
  return new DataView(run.buffer, run.byteOffset, run.length);
}

function valueAt(run: Uint8Array<ArrayBufferLike>, index: number, width: 2 | 4): number {
  if (width === 4) return view(run).getFloat32(4 * index, true);
  const bits = new DataView(new ArrayBuffer(4));
  bits.setUint32(0, view(run).getUint16(2 * index, true) << 16);
  return bits.getFloat32(0);
}

/** Replaces every value from `first` on that is not finite by +0.0; returns how many there were. */
function clear(run: Uint8Array<ArrayBufferLike>, first: number, width: 2 | 4): number {
  const values = view(run);
  let replaced = 0;
  for (let at = first * width; at < run.length; at += width) {
    const bits = width === 4 ? values.getUint32(at, true) : values.getUint16(at, true) << 16;
    if ((bits & EXPONENT) !== EXPONENT) continue;
    if (width === 4) values.setUint32(at, 0);
    else values.setUint16(at, 0);
    replaced++;
  }
  return replaced;
}
