/**
 * A consensus out of a frame into memory of one's own, aligned and as f32.
 *
 * @module
 */
import { DTYPE_BF16, elementCount } from "../../wire/round_frame.ts";
import type { ConsensusTensor } from "./engine.ts";
import type { TensorSpan } from "./messages.ts";

/** Widens bf16 to f32: the upper half of the bits. */
function widen(bytes: Uint8Array, values: Float32Array): void {
  const halves = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const words = new Uint32Array(values.buffer, values.byteOffset, values.length);
  for (let i = 0; i < words.length; i++) words[i] = halves.getUint16(2 * i, true) << 16;
}

/** Copies consensuses; the memory is reused as long as it is large enough. */
export class ConsensusCopy {
  #values = new Float32Array(0);

  /**
   * Copies all tensors.
   *
   * @returns Views of this object's memory, good until the next call.
   */
  take(buffer: ArrayBufferLike, tensors: readonly TensorSpan[]): ConsensusTensor[] {
    const counts = tensors.map(({ shape }) => elementCount(shape));
    const total = counts.reduce((sum, count) => sum + count, 0);
    if (this.#values.length < total) this.#values = new Float32Array(total);
    let from = 0;
    return tensors.map(({ shape, dtype, at, nbytes }, i) => {
      const values = this.#values.subarray(from, from + counts[i]!);
      from += counts[i]!;
      const bytes = new Uint8Array(buffer, at, nbytes);
      if (nbytes === 0) values.fill(0);
      else if (dtype === DTYPE_BF16) widen(bytes, values);
      else new Uint8Array(values.buffer, values.byteOffset, values.byteLength).set(bytes);
      return { shape, values };
    });
  }
}
