/**
 * Tierfold: averaging of model weights and gradients across machines. Fold at every host, divide once
 * at the root.
 *
 * A training process is a rank: it connects to the relay of its host and averages its tensors with all
 * other ranks, in place.
 *
 * ```ts
 * import { RankClient } from "@tierfold/tierfold";
 *
 * async function train(weights: Float32Array, step: (weights: Float32Array) => number) {
 *   const client = await RankClient.connect({
 *     relay: "127.0.0.1:7071",
 *     rank: 0,
 *     worldSize: 2,
 *     salt: Deno.env.get("TIERFOLD_SALT") ?? "",
 *   });
 *   for (let round = 0; round < 50; round++) {
 *     const steps = step(weights); // a few steps of an optimizer on data of one's own
 *     await client.allReduce([weights], { mass: steps });
 *   }
 *   await client.close();
 * }
 *
 * console.assert(typeof train === "function");
 * ```
 *
 * @module
 */
export { type CaughtUp, RankClient, type RoundResult } from "./rank/client.ts";
export type { RankOptions } from "./rank/options.ts";
export { type KnownPlace, type LaunchPlace, launchPlace } from "./rank/launch.ts";
export { gammaMass, moverMass } from "./rank/mass.ts";
export { restoreConsensus } from "./rank/restore.ts";
export {
  loadCheckpoint,
  type LoadedCheckpoint,
  type LoadedTensor,
} from "./controller/state/load.ts";
export { CheckpointError, type CheckpointErrorCode } from "./controller/state/checkpoint_error.ts";
export type { NamedTensor, TensorLike } from "./rank/tensors.ts";
export type { RoundKind } from "./wire/round_frame.ts";
export {
  InvariantError,
  WireError,
  type WireErrorCode,
  type WireErrorScope,
} from "./wire/errors.ts";
export {
  type Connection,
  TransportError,
  type TransportErrorCode,
} from "./transport/connection.ts";
export { type ConnectOptions, type Listener, type Network, tcp } from "./transport/network.ts";
export { type Address, formatAddress } from "./transport/tcp.ts";
export { tls } from "./transport/tls.ts";
export { checkIdentity, type TlsIdentity } from "./transport/tls_identity.ts";
export { DeltaListener, type DeltaListenerOptions } from "./delta/listener.ts";
export type { FollowedRound } from "./delta/follower.ts";
export type { LiveLayer } from "./delta/weights.ts";
export type { DweTelemetry } from "./delta/telemetry.ts";
export { KeyRing, type KeySource, type KeySources } from "./delta/keys.ts";
export {
  type DweContent,
  DweError,
  type DweErrorCode,
  type DweFragment,
  type DweLayer,
  type FleetKeys,
  openDwe,
  sealDwe,
} from "./wire/dwe.ts";
export {
  decodeGarw,
  encodeGarw,
  type GarwBlock,
  garwCid,
  GarwError,
  type GarwErrorCode,
} from "./wire/garw.ts";
export { fedavg } from "./controller/passes/fedavg.ts";
export {
  FederatedClient,
  type FederatedClientOptions,
  IntakeError,
} from "./controller/passes/client.ts";
export type {
  AcceptedJson,
  ClippedJson,
  ContributionJson,
  PassDetailJson,
  PassJson,
  PassLayerJson,
  StartJson,
} from "./controller/passes/json.ts";
export type { PassState } from "./controller/passes/pass.ts";
export { signedHeaders } from "./controller/passes/auth.ts";
