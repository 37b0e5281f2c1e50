// Fragments, keys and small machines that the tests of this folder share.
import { DeltaEngine, type Fragment } from "../../controller/delta/engine.ts";
import { DeltaFollower, type FollowerOptions, type Verdict } from "../../delta/follower.ts";
import { KeyRing } from "../../delta/keys.ts";
import { type DweLayer, type FleetKeys, sealDwe } from "../../wire/dwe.ts";

export const key = (text: string): Uint8Array => new TextEncoder().encode(text);
export const FLEET = key("fleet-secret");
export const OLD = key("old-key");
export const KEYS: FleetKeys = { current: FLEET };
export const RING = KeyRing.of(KEYS);
export const SID = "00112233445566aa";

/** A signed fragment of a plain DWE peer. */
export function plain(
  sequence: number | bigint,
  layers: readonly DweLayer[],
  options: { session?: string; key?: Uint8Array | undefined } = {},
): Uint8Array<ArrayBuffer> {
  const { session = "s1" } = options;
  const used = "key" in options ? options.key : FLEET;
  return sealDwe({ sessionId: session, sequence: BigInt(sequence), layers }, used);
}

export function layer(layerIndex: number, ...values: number[]): DweLayer {
  return { layerIndex, shape: [values.length], values: Float32Array.from(values) };
}

export function live(...layers: number[][]): { shape: number[]; values: Float32Array }[] {
  return layers.map((values) => ({ shape: [values.length], values: Float32Array.from(values) }));
}

/** An engine with its sequences, publishing at once. */
export class Source {
  readonly engine: DeltaEngine;
  #sequence = 0n;

  constructor(sid = SID) {
    this.engine = new DeltaEngine(sid);
  }

  readonly next = (): bigint => ++this.#sequence;

  publish(...tensors: Float32Array[]): Fragment[] {
    const shaped = tensors.map((values) => ({ shape: [values.length], values }));
    return [...this.engine.publish(shaped, this.next, FLEET)];
  }

  hello(): Fragment {
    return this.engine.hello(this.next(), FLEET);
  }

  /** All fragments of a snapshot that answers `nonce`. */
  snapshot(nonce: string): Fragment[] {
    const snapshot = this.engine.snapshot();
    if (snapshot === undefined) throw new Error("there is nothing to take a snapshot of");
    return Array.from(
      { length: snapshot.parts },
      (_, i) => snapshot.seal(i + 1, nonce, this.next(), FLEET),
    );
  }
}

/** A follower whose nonces count up from 1. */
export function follower(options: Partial<FollowerOptions> = {}): DeltaFollower {
  let drawn = 0;
  const nonce = () => String(++drawn).padStart(16, "0");
  return new DeltaFollower({ ring: RING, nonce, ...options });
}

export const nonceOf = (drawn: number): string => String(drawn).padStart(16, "0");

/** What a verdict says, in a word. */
export function brief(verdict: Verdict): string {
  const parts: string[] = [verdict.error?.code ?? verdict.outcome];
  if (verdict.reply !== undefined) parts.push("want");
  if (verdict.round !== undefined) parts.push(`${verdict.round.by} ${verdict.round.version}`);
  if (verdict.close) parts.push("close");
  return parts.join(", ");
}
