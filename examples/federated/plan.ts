/**
 * What all processes of the federated example agree on, and what they tell the one that started them.
 *
 * @module
 */

import { FederatedClient, type GarwBlock, type StartJson } from "../../mod.ts";
import type { Parameter } from "../digits/model.ts";

/** SGD's learning rate at every client. */
export const LEARNING_RATE = 0.2;

/** Most steps that a client makes in a round; those with smaller shards make one pass over them. */
export const MAX_STEPS = 48;

/** Largest norm of one layer's weights, and largest number of samples, that anybody may send. */
const LIMITS = { max_norm: 100, max_samples: 8_000 };

/** The arguments of every process of the federated example: URL CLIENTS ROUNDS SEED WAIT, and more. */
export interface Setting {
  /** The controller's HTTP address. */
  readonly url: string;
  /** How many clients there are. */
  readonly clients: number;
  readonly rounds: number;
  readonly seed: number;
  /** How long a round waits for its clients, in milliseconds. */
  readonly waitMs: number;
  /** What follows. */
  readonly rest: readonly string[];
}

/** Reads a process's arguments. */
export function settingOf([url = "", ...args]: readonly string[]): Setting {
  const [clients = NaN, rounds = NaN, seed = NaN, waitMs = NaN] = args.map(Number);
  return { url, clients, rounds, seed, waitMs, rest: args.slice(4) };
}

/** A client's name. */
export function peerName(client: number): string {
  return `client-${String(client).padStart(2, "0")}`;
}

/** Connects as one of the peers; the salt comes from the environment. */
export function connect(url: string, peer: string): FederatedClient {
  const salt = Uint8Array.fromHex(Deno.env.get("TIERFOLD_SALT") ?? "");
  return new FederatedClient({ url, salt, peer });
}

/** The pass of a round. */
export function passOf(
  round: number,
  { clients, waitMs }: Setting,
  parameters: readonly Parameter[],
): StartJson {
  return {
    round,
    initiator: "lead",
    expected: clients,
    quorum: Math.ceil(clients / 2),
    deadline_ms: waitMs,
    layers: parameters.map(({ name, shape }) => ({ name: layerName(name), shape: [...shape] })),
    consensus: true,
    ...LIMITS,
  };
}

/** The key of a round's pass. */
export function keyOf(round: number): string {
  return `${round}-lead`;
}

/** A tensor's name as a pass can have it. */
export function layerName(name: string): string {
  return name.replaceAll("/", ".");
}

/** A client's weights as blocks, layer by layer. */
export function blocksOf(
  parameters: readonly Parameter[],
  numSamples: number,
): { layer: string; block: GarwBlock }[] {
  return parameters.map(({ name, shape, data }) => ({
    layer: layerName(name),
    block: { shape, values: data, numSamples },
  }));
}

/** Fetches a finished pass's layers into `parameters`. */
export async function fetchInto(
  parameters: readonly Parameter[],
  client: FederatedClient,
  key: string,
): Promise<void> {
  const { layers } = await client.read(key);
  for (const { name, data } of parameters) {
    const cid = layers.find((layer) => layer.name === layerName(name))?.cid;
    if (cid === undefined) throw new Error(`pass ${key} has no result for layer ${name}`);
    data.set((await client.block(cid)).values);
  }
}

/** A process has its digits, and waits for the first round. */
export interface ReadyLine {
  readonly kind: "ready";
}

/** A round is over. */
export interface RoundLine {
  readonly kind: "round";
  readonly round: number;
  /** Clients whose weights are in. */
  readonly received: number;
  /** Samples behind them. */
  readonly samples: number;
  /** Share of held-out digits that the consensus names rightly. */
  readonly accuracy: number;
  /** The same, as the replica answers; undefined where it was not asked. */
  readonly replica: number;
  readonly ms: number;
}

/** A round failed: too few clients came in time. */
export interface FailedLine {
  readonly kind: "failed";
  readonly round: number;
  readonly reason: string;
}

/** What a client has to say about itself at its end. */
export interface ClientLine {
  readonly kind: "client";
  readonly peer: string;
  /** Digits in its shard. */
  readonly digits: number;
  /** Rounds that its weights are in. */
  readonly delivered: number;
  /** Rounds for which they came too late. */
  readonly late: number;
}

/** How the malicious client fared. */
export interface MaliceLine {
  readonly kind: "malice";
  /** Requests that were made, and what each kind of them was refused with. */
  readonly attempts: number;
  readonly accepted: number;
  readonly refusals: Readonly<Record<string, string>>;
}

/** Somebody is gone in the middle of an upload. */
export interface VanishedLine {
  readonly kind: "vanished";
  readonly peer: string;
  readonly round: number;
}

/** Any line of a process of this example. */
export type Line = ReadyLine | RoundLine | FailedLine | ClientLine | MaliceLine | VanishedLine;

/** Writes one line. */
export function say(line: Line): void {
  console.log(JSON.stringify(line));
}
