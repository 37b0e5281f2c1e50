/**
 * Turns each consensus into the changes since the one before, and into snapshots of what replicas hold.
 *
 * @module
 */
import { invariant } from "../../wire/errors.ts";
import { type DweLayer, sealDwe } from "../../wire/dwe.ts";
import { elementCount } from "../../wire/round_frame.ts";
import { MAX_DELTA_LAYERS, type Piece, planFragments } from "../../delta/layout.ts";
import { formatTag } from "../../delta/session.ts";

/** Most schemas of one session: parameters, buffers and a few more. */
const MAX_STREAMS = 16;

/** One tensor of a consensus. */
export interface ConsensusTensor {
  /** Its dims. */
  readonly shape: readonly number[];
  /** f32 values, row-major. */
  readonly values: Float32Array;
}

/** A sealed fragment, ready to go out. */
export interface Fragment {
  /** Its session_id. */
  readonly sessionId: string;
  /** The encoded fragment, without its length. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Tensors of one schema: parameters, or buffers. */
interface Stream {
  /** Index of the first of its layers. */
  readonly base: number;
  /** What every replica holds: the sum of what was published, rounded as replicas round. */
  readonly shadow: readonly ConsensusTensor[];
  readonly plan: readonly (readonly Piece[])[];
}

/** A consensus that was not published. */
export class UnpublishableError extends Error {
  /** "UnpublishableError". */
  override readonly name = "UnpublishableError";
}

/** Index of the first value whose change is not a finite f32; -1 when there is none. */
function firstUntellable(values: Float32Array, held: Float32Array): number {
  for (let k = 0; k < values.length; k++) {
    const change = Math.fround(values[k]! - held[k]!);
    // NaN and the infinities are what gives no zero here.
    if (change - change !== 0) return k;
  }
  return -1;
}

/** What replicas hold at one version, sealed fragment by fragment for whoever asks. */
export class Snapshot {
  readonly #sid: string;
  readonly #layers: readonly ConsensusTensor[];
  readonly #plan: readonly (readonly Piece[])[];
  /** Which version it is. */
  readonly version: number;

  /** Keeps copies of the given layers. */
  constructor(sid: string, version: number, layers: readonly ConsensusTensor[]) {
    this.#sid = sid;
    this.version = version;
    this.#layers = layers.map(({ shape, values }) => ({ shape, values: values.slice() }));
    this.#plan = planFragments(layers.map(({ shape }, layer) => ({ layer, shape })), true);
  }

  /** Of how many fragments it is. */
  get parts(): number {
    return this.#plan.length;
  }

  /**
   * Seals one fragment.
   *
   * @param part Which, from 1.
   * @param nonce The request that it answers.
   */
  seal(part: number, nonce: string, sequence: bigint, key: Uint8Array | undefined): Fragment {
    const pieces = this.#plan[part - 1];
    invariant(pieces !== undefined, `part ${part} of a snapshot of ${this.parts}`);
    const sessionId = formatTag({
      what: "snapshot",
      sid: this.#sid,
      version: this.version,
      part,
      parts: this.parts,
      nonce,
    });
    const layers = pieces.map(({ layer, layerIndex, shape, from, count }): DweLayer => ({
      layerIndex,
      shape,
      values: this.#layers[layer]!.values.subarray(from, from + count),
    }));
    return { sessionId, bytes: sealDwe({ sessionId, sequence, layers }, key) };
  }
}

/**
 * The weights as replicas hold them, and the way from one version to the next.
 *
 * A change is fround(consensus - held), and what is held afterwards is fround(held + change), as every
 * replica computes it. So a rounding error of one version is made good by the next one instead of adding
 * up; where a weight stays between half and twice of what it was there is none at all (Sterbenz's lemma).
 */
export class DeltaEngine {
  readonly #sid: string;
  readonly #streams = new Map<string, Stream>();
  #layers: ConsensusTensor[] = [];
  #version = 0;

  /** Takes the publisher's run, 16 hex digits. */
  constructor(sid: string) {
    this.#sid = sid;
  }

  /** The publisher's run. */
  get sid(): string {
    return this.#sid;
  }

  /** The last version; 0 before the first consensus. */
  get version(): number {
    return this.#version;
  }

  /** A copy of what replicas hold now; undefined before the first consensus. */
  snapshot(): Snapshot | undefined {
    if (this.#version === 0) return undefined;
    return new Snapshot(this.#sid, this.#version, this.#layers);
  }

  /** The fragment that opens a connection. */
  hello(sequence: bigint, key: Uint8Array | undefined): Fragment {
    const sessionId = formatTag({ what: "hello", sid: this.#sid, version: this.#version });
    return { sessionId, bytes: sealDwe({ sessionId, sequence, layers: [] }, key) };
  }

  /**
   * Takes the next consensus. The first one of a schema is what its later ones are compared with: it is
   * announced, but only snapshots carry it.
   *
   * @param tensors All tensors; they are read until the last fragment has been drawn.
   * @param next Draws the next sequence.
   * @returns The fragments, each sealed when it is drawn. All must be drawn before the next call.
   * @throws {UnpublishableError} when a change is not finite, or there are too many layers or schemas;
   *   nothing has changed then.
   */
  publish(
    tensors: readonly ConsensusTensor[],
    next: () => bigint,
    key: Uint8Array | undefined,
  ): Iterable<Fragment> {
    const schema = tensors.map(({ shape }) => shape.join("x")).join(",");
    const stream = this.#streams.get(schema);
    this.#check(tensors, stream);
    this.#version++;
    if (stream === undefined) {
      this.#begin(schema, tensors);
      const sessionId = formatTag({ what: "base", sid: this.#sid, version: this.#version });
      return [{ sessionId, bytes: sealDwe({ sessionId, sequence: next(), layers: [] }, key) }];
    }
    return this.#changes(tensors, stream, this.#version, next, key);
  }

  #check(tensors: readonly ConsensusTensor[], stream: Stream | undefined): void {
    if (stream === undefined) {
      if (this.#streams.size >= MAX_STREAMS) {
        throw new UnpublishableError(
          `a consensus of yet another schema; ${MAX_STREAMS} are followed`,
        );
      }
      if (this.#layers.length + tensors.length > MAX_DELTA_LAYERS) {
        throw new UnpublishableError(`more than ${MAX_DELTA_LAYERS} layers`);
      }
    }
    for (const [i, { shape, values }] of tensors.entries()) {
      invariant(elementCount(shape) === values.length, `tensor ${i} has the values of its shape`);
      const k = firstUntellable(
        values,
        stream?.shadow[i]?.values ?? new Float32Array(values.length),
      );
      if (k < 0) continue;
      throw new UnpublishableError(
        `value ${k} of tensor ${i} is ${values[k]}, which cannot be told as a change`,
      );
    }
  }

  #begin(schema: string, tensors: readonly ConsensusTensor[]): void {
    const base = this.#layers.length;
    const shadow = tensors.map(({ shape, values }) => ({
      shape: [...shape],
      // Replicas start from +0.0: x + 0 turns -0.0 into +0.0 and leaves all else alone.
      values: values.map((value) => value + 0),
    }));
    const plan = planFragments(shadow.map(({ shape }, i) => ({ layer: base + i, shape })), false);
    this.#streams.set(schema, { base, shadow, plan });
    this.#layers = [...this.#layers, ...shadow];
  }

  *#changes(
    tensors: readonly ConsensusTensor[],
    { base, shadow, plan }: Stream,
    version: number,
    next: () => bigint,
    key: Uint8Array | undefined,
  ): Generator<Fragment> {
    for (const [i, pieces] of plan.entries()) {
      const layers = pieces.map(({ layer, layerIndex, shape, from, count }): DweLayer => {
        const target = shadow[layer - base]!.values.subarray(from, from + count);
        const source = tensors[layer - base]!.values.subarray(from, from + count);
        const values = new Float32Array(count);
        for (let k = 0; k < count; k++) {
          const change = Math.fround(source[k]! - target[k]!);
          values[k] = change;
          target[k] = target[k]! + change;
        }
        return { layerIndex, shape, values };
      });
      const part = { version, part: i + 1, parts: plan.length };
      const sessionId = formatTag({ what: "delta", sid: this.#sid, ...part });
      yield { sessionId, bytes: sealDwe({ sessionId, sequence: next(), layers }, key) };
    }
  }
}
