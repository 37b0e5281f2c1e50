/**
 * The network of the digits example: 784-32-10, trained with plain SGD on TensorFlow.js's CPU backend.
 *
 * @module
 */

import { createHash } from "node:crypto";
import * as tf from "@tensorflow/tfjs";
import { CLASSES, type Digits, PIXELS } from "./data.ts";

/** Hidden units: enough for more than 90 % of the digits, small enough for a CPU without SIMD. */
const HIDDEN = 32;

/** One weight tensor outside TensorFlow.js, ready to be averaged. */
export interface Parameter {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** The network, with its weights also at hand as plain arrays. */
export class DigitsModel {
  /**
   * The weights as {@link pull} last read them and as {@link push} next writes them. The arrays stay
   * the same for the model's life, so that a client may write results into them.
   */
  readonly parameters: readonly Parameter[];
  readonly #model: tf.Sequential;

  private constructor(model: tf.Sequential) {
    this.#model = model;
    this.parameters = model.weights.map((weight) => ({
      name: weight.originalName,
      shape: weight.shape.map((dim) => dim!),
      data: new Float32Array(weight.shape.reduce<number>((count, dim) => count * dim!, 1)),
    }));
    this.pull();
  }

  /** A fresh network; the same seed gives the same bits everywhere. */
  static async create(seed: number, learningRate: number): Promise<DigitsModel> {
    tf.enableProdMode();
    await tf.setBackend("cpu");
    const model = tf.sequential({
      layers: [
        tf.layers.dense({
          name: "hidden",
          inputShape: [PIXELS],
          units: HIDDEN,
          activation: "relu",
          kernelInitializer: tf.initializers.heNormal({ seed }),
        }),
        tf.layers.dense({
          name: "digit",
          units: CLASSES,
          activation: "softmax",
          kernelInitializer: tf.initializers.glorotNormal({ seed: seed + 1 }),
        }),
      ],
    });
    model.compile({ optimizer: tf.train.sgd(learningRate), loss: "categoricalCrossentropy" });
    return new DigitsModel(model);
  }

  /** Copies the weights out of TensorFlow.js into {@link parameters}. */
  pull(): void {
    this.#model.weights.forEach((weight, index) => {
      this.parameters[index]!.data.set(weight.read().dataSync());
    });
  }

  /** Copies {@link parameters} into TensorFlow.js as the weights to go on from. */
  push(): void {
    tf.tidy(() =>
      this.#model.setWeights(
        this.parameters.map(({ data, shape }) => tf.tensor(data.slice(), [...shape])),
      )
    );
  }

  /** One step of SGD on a batch; returns the batch's mean loss (cross-entropy, nats). */
  async step(batch: Digits): Promise<number> {
    const pixels = tf.tensor2d(batch.pixels, [batch.labels.length, PIXELS]);
    const labels = tf.tidy(() => tf.oneHot(tf.tensor1d(batch.labels, "int32"), CLASSES));
    try {
      return await this.#model.trainOnBatch(pixels, labels) as number;
    } finally {
      tf.dispose([pixels, labels]);
    }
  }

  /** The share of `digits` that the network names rightly, from 0 to 1. */
  accuracy(digits: Digits): number {
    const guesses = tf.tidy(() => {
      const pixels = tf.tensor2d(digits.pixels, [digits.labels.length, PIXELS]);
      return (this.#model.predict(pixels) as tf.Tensor).argMax(-1).dataSync();
    });
    return digits.labels.filter((label, index) => label === guesses[index]).length /
      digits.labels.length;
  }
  /** SHA-256 of all weights' bytes, in hex: equal for equal bits only. */
  fingerprint(): string {
    const hash = createHash("sha256");
    for (const { data } of this.parameters) hash.update(data);
    return hash.digest("hex");
  }
}
