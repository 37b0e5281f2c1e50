/**
 * What a contribution must be, beyond being a block.
 *
 * @module
 */
import { Breather } from "../../transport/breather.ts";
import type { GarwLayout } from "../../wire/garw.ts";
import { elementCount } from "../../wire/round_frame.ts";
import { PassError, type PassSpec } from "./pass.ts";

/** Values looked at between two turns of the loop, at the most. */
const SLICE_VALUES = 256 * 1024;

function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

/**
 * Checks a block's shape against its values and against what the pass expects.
 *
 * @param doing What is being done, for the error.
 * @param expected The layer's shape, where it is known.
 * @throws {PassError} ShapeMismatch, with both shapes.
 */
export function checkShape(
  doing: string,
  { shape, valueCount }: GarwLayout,
  expected: readonly number[] | undefined,
): void {
  if (elementCount(shape) !== valueCount) {
    throw new PassError(
      "ShapeMismatch",
      `${doing}: its shape ${shapeText(shape)} has ${
        elementCount(shape)
      } elements, but there are ` +
        `${valueCount} values`,
    );
  }
  if (expected !== undefined && shapeText(shape) !== shapeText(expected)) {
    throw new PassError(
      "ShapeMismatch",
      `${doing}: its shape is ${shapeText(shape)}, expected ${shapeText(expected)}`,
    );
  }
}

/**
 * Checks that every value is a number, and that together they are not too large; lets the loop turn.
 *
 * @param values Little-endian f32.
 * @returns The sum of their squares, in float64 and in order.
 * @throws {PassError} NonFinite, NormExceeded.
 */
export async function checkValues(
  doing: string,
  values: Uint8Array,
  { maxNorm }: PassSpec,
): Promise<number> {
  const view = new DataView(values.buffer, values.byteOffset, values.byteLength);
  const count = values.length / 4;
  const breather = new Breather();
  let squares = 0;
  for (let from = 0; from < count; from += SLICE_VALUES) {
    const to = Math.min(from + SLICE_VALUES, count);
    for (let i = from; i < to; i++) {
      const value = view.getFloat32(4 * i, true);
      if (!Number.isFinite(value)) {
        throw new PassError(
          "NonFinite",
          `${doing}: value ${i} is ${value}; one such value would spoil the average for all`,
        );
      }
      squares += value * value;
    }
    await breather.breathe();
  }
  if (maxNorm !== undefined && Math.sqrt(squares) > maxNorm) {
    throw new PassError(
      "NormExceeded",
      `${doing}: its values have a norm of ${
        Math.sqrt(squares).toPrecision(6)
      }, at most ${maxNorm} ` +
        "is allowed",
    );
  }
  return squares;
}
