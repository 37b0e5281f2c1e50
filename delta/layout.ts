/**
 * How layers are laid out in fragments of at most 8 MiB.
 *
 * A layer that fits a fragment travels whole, as DWE has it. A larger one is cut into runs of 1,048,576
 * values, and each run travels as a layer of its own, whose layer_index says more:
 *
 *     bits 0-31    index of the layer
 *     bits 32-51   0 for a whole layer; k >= 1 for its k-th run; 1,048,575 for its shape
 *
 * The shape of a layer that is cut travels, in snapshots only, as a layer without values whose dims are
 * the layer's and a 0. A plain DWE peer has no layer of such an index, so it refuses the fragment whole
 * and changes nothing.
 *
 * @module
 */
import { DWE_MAX_BYTES, dweEncodedBytes } from "../wire/dwe.ts";
import { elementCount } from "../wire/round_frame.ts";

/** Values of each run of a layer that is cut, but the last one. */
export const RUN_VALUES = 1_048_576;
const RUN_UNIT = 2 ** 32;
const SHAPE_RUN = 1_048_575;
/** Most layers that a session may have: those of a frame, for each of a few schemas. */
export const MAX_DELTA_LAYERS = 1_048_576;

/** Longest session_id of Tierfold, in characters: room for it is kept in every fragment. */
const SESSION_CHARS = 96;

/** What a layer_index says. */
export type LayerAddress =
  | { readonly kind: "whole" | "shape"; readonly layer: number }
  | { readonly kind: "run"; readonly layer: number; /** Its first value. */ readonly from: number };

/** Takes a layer_index apart. */
export function addressOf(layerIndex: number): LayerAddress {
  const layer = layerIndex % RUN_UNIT;
  const run = Math.floor(layerIndex / RUN_UNIT);
  if (run === 0) return { kind: "whole", layer };
  if (run === SHAPE_RUN) return { kind: "shape", layer };
  return { kind: "run", layer, from: (run - 1) * RUN_VALUES };
}

/** Some values of one layer, as they travel in one fragment. */
export interface Piece {
  /** Which layer. */
  readonly layer: number;
  /** The layer_index to send. */
  readonly layerIndex: number;
  /** The dims to send. */
  readonly shape: readonly number[];
  /** First value. */
  readonly from: number;
  /** Number of values. */
  readonly count: number;
}

/** The pieces of one layer. */
function piecesOf(layer: number, shape: readonly number[], withShape: boolean): Piece[] {
  const count = elementCount(shape);
  const alone = dweEncodedBytes("x".repeat(SESSION_CHARS), [{
    ndim: shape.length,
    valueCount: count,
  }]);
  if (alone <= DWE_MAX_BYTES) return [{ layer, layerIndex: layer, shape, from: 0, count }];
  const pieces: Piece[] = [];
  if (withShape) {
    const layerIndex = SHAPE_RUN * RUN_UNIT + layer;
    pieces.push({ layer, layerIndex, shape: [...shape, 0], from: 0, count: 0 });
  }
  for (let from = 0, run = 1; from < count; from += RUN_VALUES, run++) {
    const values = Math.min(RUN_VALUES, count - from);
    const layerIndex = run * RUN_UNIT + layer;
    pieces.push({ layer, layerIndex, shape: [values], from, count: values });
  }
  return pieces;
}

/**
 * Lays layers out in fragments, in order.
 *
 * @param layers Index and shape of each.
 * @param withShapes Whether the shapes of layers that are cut travel too.
 * @returns The pieces of each fragment; at least one fragment, even without layers.
 */
export function planFragments(
  layers: Iterable<{ readonly layer: number; readonly shape: readonly number[] }>,
  withShapes: boolean,
): Piece[][] {
  const empty = dweEncodedBytes("x".repeat(SESSION_CHARS), []);
  let current: Piece[] = [];
  let bytes = empty;
  const fragments = [current];
  for (const { layer, shape } of layers) {
    for (const piece of piecesOf(layer, shape, withShapes)) {
      const more = 24 + 8 * piece.shape.length + 4 * piece.count;
      if (bytes + more > DWE_MAX_BYTES && current.length > 0) {
        fragments.push(current = []);
        bytes = empty;
      }
      current.push(piece);
      bytes += more;
    }
  }
  return fragments;
}
