/**
 * Tierfold for Node.js: what of it needs no Deno. A rank connects through Node's own sockets; servers,
 * replicas and checkpoints are Deno's.
 *
 * @module
 */
export { RankClient, type RoundResult } from "./rank/client.ts";
export type { RankOptions } from "./rank/options.ts";
export { type KnownPlace, type LaunchPlace, launchPlace } from "./rank/launch.ts";
export { gammaMass, moverMass } from "./rank/mass.ts";
export { restoreConsensus } from "./rank/restore.ts";
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
export type { ConnectOptions } from "./transport/network.ts";
export { type Address, formatAddress } from "./transport/address.ts";
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
export { signedHeaders } from "./controller/passes/auth.ts";
