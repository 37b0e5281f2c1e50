/**
 * Tierfold: averaging of model weights and gradients across machines. Fold at every host, divide once
 * at the root.
 *
 * A training process is a rank: it connects to the relay of its host and averages its tensors with all
 * other ranks, in place.
 *
 * @module
 */
export { RankClient, type RoundResult } from "./rank/client.ts";
export type { RankOptions } from "./rank/options.ts";
export { gammaMass, moverMass } from "./rank/mass.ts";
export type { NamedTensor, TensorLike } from "./rank/tensors.ts";
export type { RoundKind } from "./wire/round_frame.ts";
export {
  InvariantError,
  WireError,
  type WireErrorCode,
  type WireErrorScope,
} from "./wire/errors.ts";
export { TransportError, type TransportErrorCode } from "./transport/connection.ts";
