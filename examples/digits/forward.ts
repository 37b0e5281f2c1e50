/**
 * The digits network without TensorFlow.js: two dense layers forward, on weights from anywhere.
 *
 * @module
 */

import { CLASSES, PIXELS } from "./data.ts";

/** One tensor of the network. */
export interface Weights {
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** What the network makes of a digit. */
export interface Guess {
  /** The most likely label. */
  readonly digit: number;
  /** How likely the network holds it, from 0 to 1. */
  readonly probability: number;
}

/**
 * Why these tensors are not the digits network's; undefined when they are: [784, n], [n], [n, 10], [10].
 */
export function misfit(layers: readonly Weights[]): string | undefined {
  const hidden = layers[1]?.values.length ?? 0;
  const wanted = [[PIXELS, hidden], [hidden], [hidden, CLASSES], [CLASSES]];
  const text = (shapes: readonly (readonly number[])[]) =>
    shapes.map((shape) => `[${shape.join(", ")}]`).join(" ");
  const got = layers.map(({ shape }) => shape);
  if (text(got) === text(wanted)) return undefined;
  return `expected tensors of shapes ${text(wanted)}, got ${text(got) || "none"}`;
}

/** out = bias + input x kernel, for one input. */
function dense(input: Float32Array, kernel: Float32Array, bias: Float32Array): Float32Array {
  const out = Float32Array.from(bias);
  const width = out.length;
  for (let i = 0; i < input.length; i++) {
    const value = input[i]!;
    // Most pixels are blank.
    if (value === 0) continue;
    for (let j = 0; j < width; j++) out[j] = out[j]! + value * kernel[i * width + j]!;
  }
  return out;
}

/**
 * Names digits.
 *
 * @param layers Tensors without a {@link misfit}.
 * @param pixels 784 of them for each digit.
 */
export function guess(layers: readonly Weights[], pixels: Float32Array): Guess[] {
  const [kernel, bias, outKernel, outBias] = layers.map(({ values }) => values);
  const guesses: Guess[] = [];
  for (let from = 0; from + PIXELS <= pixels.length; from += PIXELS) {
    const hidden = dense(pixels.subarray(from, from + PIXELS), kernel!, bias!)
      .map((value) => Math.max(value, 0));
    const scores = dense(hidden, outKernel!, outBias!);
    const top = Math.max(...scores);
    const digit = scores.indexOf(top);
    const sum = scores.reduce((total, score) => total + Math.exp(score - top), 0);
    guesses.push({ digit, probability: 1 / sum });
  }
  return guesses;
}
