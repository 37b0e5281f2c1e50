/**
 * Live weights, changed by whole fragments only.
 *
 * @module
 */
import { DweError, type DweLayer } from "../wire/dwe.ts";
import { elementCount } from "../wire/round_frame.ts";
import { addressOf } from "./layout.ts";

/** One layer's weights. */
export interface LiveLayer {
  /** Its dims. */
  readonly shape: readonly number[];
  /** f32 weights, row-major; they change in place. */
  readonly values: Float32Array;
}

interface Addition {
  readonly target: Float32Array;
  readonly values: Float32Array;
}

function shapeMismatch(layer: DweLayer, expected: string): DweError {
  return new DweError(
    "ShapeMismatch",
    `applying layer_index ${layer.layerIndex}: its shape is [${layer.shape.join(", ")}] with ` +
      `${layer.values.length} values, expected ${expected}`,
  );
}

/**
 * Finds out what a fragment would add where, without adding anything.
 *
 * @throws {DweError} UnknownLayer, ShapeMismatch.
 */
function resolve(layers: readonly LiveLayer[], changes: readonly DweLayer[]): Addition[] {
  return changes.map((change) => {
    const address = addressOf(change.layerIndex);
    const live = layers[address.layer];
    if (live === undefined || address.kind === "shape") {
      throw new DweError(
        "UnknownLayer",
        `applying layer_index ${change.layerIndex}: there are ${layers.length} layers`,
      );
    }
    const { values } = change;
    if (elementCount(change.shape) !== values.length) {
      throw shapeMismatch(change, "as many values as the shape has elements");
    }
    if (address.kind !== "run") {
      if (values.length !== live.values.length) {
        throw shapeMismatch(change, `${live.values.length} values`);
      }
      return { target: live.values, values };
    }
    const target = live.values.subarray(address.from, address.from + values.length);
    if (target.length !== values.length || values.length === 0) {
      throw shapeMismatch(change, `a run within ${live.values.length} values`);
    }
    return { target, values };
  });
}

/**
 * Adds a fragment's changes to the weights, all of them or, on an error, none.
 *
 * @throws {DweError} UnknownLayer, ShapeMismatch.
 */
export function applyChanges(layers: readonly LiveLayer[], changes: readonly DweLayer[]): void {
  for (const { target, values } of resolve(layers, changes)) {
    for (let i = 0; i < values.length; i++) target[i] = target[i]! + values[i]!;
  }
}

/** Weights that a snapshot is building up; its layers are those that the snapshot shows. */
export class SnapshotBuilder {
  readonly #layers: LiveLayer[] = [];
  readonly #maxBytes: number;
  #bytes = 0;

  /** Takes the most bytes of weights that a snapshot may have. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Takes the next fragment of the snapshot, whose layers come in order.
   *
   * @throws {DweError} UnknownLayer, ShapeMismatch, Oversized.
   */
  add(changes: readonly DweLayer[]): void {
    for (const change of changes) {
      const address = addressOf(change.layerIndex);
      if (address.kind === "run") {
        if (address.layer !== this.#layers.length - 1) throw this.#unknown(change);
        applyChanges(this.#layers, [change]);
        continue;
      }
      if (address.layer !== this.#layers.length) throw this.#unknown(change);
      const shape = address.kind === "whole" ? change.shape : change.shape.slice(0, -1);
      const count = elementCount(shape);
      if (address.kind === "whole" && count !== change.values.length) {
        throw shapeMismatch(change, "as many values as the shape has elements");
      }
      this.#bytes += 4 * count;
      if (!(this.#bytes <= this.#maxBytes)) {
        throw new DweError(
          "Oversized",
          `building a snapshot: with layer ${address.layer} it has ${this.#bytes} bytes of weights, ` +
            `at most ${this.#maxBytes} are allowed`,
        );
      }
      const values = address.kind === "whole" ? change.values.slice() : new Float32Array(count);
      this.#layers.push({ shape: [...shape], values });
    }
  }

  /** The weights, once all fragments are in. */
  get layers(): readonly LiveLayer[] {
    return this.#layers;
  }

  #unknown({ layerIndex }: DweLayer): DweError {
    return new DweError(
      "UnknownLayer",
      `building a snapshot: layer_index ${layerIndex} does not follow ${this.#layers.length} layers`,
    );
  }
}
