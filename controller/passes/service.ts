/**
 * Backward passes at work: the machine, the store, the clock and the fold together.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { FoldKernel } from "../../kernels/kernel.ts";
import { canonicalGarw, type GarwLayout, parseGarw } from "../../wire/garw.ts";
import { foldedMean } from "./aggregate.ts";
import { checkShape, checkValues } from "./checks.ts";
import { PassCoordinator } from "./coordinator.ts";
import { type Contribution, PassError, type PassSpec, type PassStatus } from "./pass.ts";
import {
  type AggregationPlan,
  checkEnough,
  type PassPolicy,
  planAggregation,
  TRUSTING,
} from "./policy.ts";
import type { PassDetailJson, PassJson } from "./json.ts";
import { passJson, type ResultNames } from "./schemas.ts";
import { contributionJson } from "./schemas.ts";
import { type BlockStore, nameOf } from "./store.ts";
import { trimmedMean } from "./trimmed.ts";

const log = getLogger(["tierfold", "passes"]);

/** Longest time until a timer rings, in milliseconds: what setTimeout can hold. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** A finished pass, with its values. */
export interface PassResult {
  /** "{round}-{initiator}". */
  readonly key: string;
  /** What was asked for. */
  readonly spec: PassSpec;
  /** Samples behind the result. */
  readonly numSamples: number;
  /** The averaged layers, in the order of the pass. */
  readonly layers: readonly {
    readonly name: string;
    readonly shape: readonly number[];
    readonly values: Float32Array;
  }[];
}

/** What a {@link PassService} works with. */
export interface PassServiceOptions {
  /** Does the sums; closed by its owner. */
  readonly kernel: FoldKernel;
  /** Keeps the blocks. */
  readonly store: BlockStore;
  /** Most passes held at once, 256 unless given; old terminal ones make room for new ones. */
  readonly maxPasses?: number;
  /** What is done about contributors who are not trusted; nothing unless given. */
  readonly policy?: PassPolicy | undefined;
  /** Told of every finished pass, before it is shown as Complete. */
  readonly onComplete?: (result: PassResult) => void;
}

/** The answer to a contribution. */
export interface Accepted {
  /** Name of the block. */
  readonly cid: string;
  /** True when the very same contribution was there before. */
  readonly repeated: boolean;
  /** The pass after it. */
  readonly status: PassStatus;
}

function flatten(layers: PassResult["layers"]): Float32Array {
  const length = layers.reduce((sum, { values }) => sum + values.length, 0);
  const flat = new Float32Array(length);
  let at = 0;
  for (const { values } of layers) {
    flat.set(values, at);
    at += values.length;
  }
  return flat;
}

/** Takes contributions, and aggregates each pass as soon as it is complete or its time is over. */
export class PassService {
  readonly #passes: PassCoordinator;
  readonly #policy: PassPolicy;
  readonly #options: PassServiceOptions;
  /** Shapes of layers that the initiator left to the first contribution, by pass. */
  readonly #shapes = new Map<string, Map<string, readonly number[]>>();
  /** What finished passes hold in the store. */
  readonly #results = new Map<string, ResultNames & { readonly held: readonly string[] }>();
  /** Blocks that terminal passes used, and that go when the pass is forgotten. */
  readonly #used = new Map<string, readonly string[]>();
  readonly #running = new Set<Promise<void>>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  /** Starts without any pass. */
  constructor(options: PassServiceOptions) {
    this.#options = options;
    this.#policy = options.policy ?? TRUSTING;
    this.#passes = new PassCoordinator({ maxPasses: options.maxPasses ?? 256 });
  }

  /**
   * Starts a pass.
   *
   * @throws {PassError} InvalidPass, PassExists, TooManyPasses when all of them are active.
   */
  async start(spec: PassSpec): Promise<PassJson> {
    checkEnough(spec, this.#policy);
    if (this.#passes.full) {
      const dropped = this.#passes.dropOldestTerminal();
      if (dropped !== undefined) await this.#forget(dropped);
    }
    const { key } = this.#passes.start(spec, Date.now());
    this.#shapes.set(key, new Map());
    this.#arm();
    log.info("pass {key} started: {expected} peers expected", { key, expected: spec.expected });
    return this.view(key);
  }

  /**
   * Checks whether a contribution may come, before its bytes are read.
   *
   * @throws {PassError} PassNotFound, PassAlreadyTerminal, UnknownLayer, UnknownPeer.
   */
  admit(key: string, peer: string, layer: string): void {
    this.#passes.admit(key, peer, layer);
  }

  /**
   * Takes a contribution: an encoded block, which must not change any more.
   *
   * @throws {GarwError} when it is no block.
   * @throws {PassError} when the pass cannot take it.
   * @throws {StoreError} when the block cannot be kept.
   */
  async submit(key: string, peer: string, layer: string, block: Uint8Array): Promise<Accepted> {
    const { spec } = this.#passes.admit(key, peer, layer);
    const doing = `contributing layer "${layer}" of "${peer}" to pass ${key}`;
    const layout = parseGarw(block);
    this.#checkShape(doing, key, layer, layout);
    const bytes = block.subarray(layout.valuesAt, layout.valuesAt + 4 * layout.valueCount);
    const squares = await checkValues(doing, bytes, spec);
    const canonical = canonicalOf(block, layout);
    const cid = await nameOf(canonical);
    await this.#options.store.put(cid, canonical);
    let taken = false;
    try {
      // The first contribution may have set the shape meanwhile.
      this.#checkShape(doing, key, layer, layout);
      const contribution: Contribution = {
        peer,
        cid,
        layer,
        numSamples: layout.numSamples,
        squares,
        submittedAtMs: Date.now(),
      };
      const { repeated, ready } = this.#passes.submit(key, contribution);
      taken = !repeated;
      if (taken) this.#shapes.get(key)?.set(layer, layout.shape);
      const status = this.#passes.status(key);
      if (ready) this.#aggregate(key);
      return { cid, repeated, status };
    } finally {
      if (!taken) {
        await this.#options.store.release(cid);
        await this.#options.store.forget(cid);
      }
    }
  }

  #checkShape(doing: string, key: string, layer: string, layout: GarwLayout): void {
    const { spec } = this.#passes.status(key);
    const declared = spec.layers.find(({ name }) => name === layer)?.shape;
    checkShape(doing, layout, declared ?? this.#shapes.get(key)?.get(layer));
  }

  /**
   * A pass as the intake shows it.
   *
   * @throws {PassError} PassNotFound.
   */
  view(key: string): PassJson {
    const status = this.#passes.status(key);
    const shapes = this.#shapes.get(key) ?? new Map();
    return passJson(status, shapes, this.#results.get(key), this.#policy);
  }

  /**
   * A pass with its contributions.
   *
   * @throws {PassError} PassNotFound.
   */
  detail(key: string): PassDetailJson {
    const contributions = this.#passes.contributions(key).map(contributionJson);
    return { ...this.view(key), contributions };
  }

  /** All passes, oldest first. */
  list(): PassJson[] {
    return this.#passes.list().map(({ key }) => this.view(key));
  }

  /** How many passes are not terminal. */
  get activeCount(): number {
    return this.#passes.activeCount;
  }

  /**
   * A block by name, verified.
   *
   * @throws {StoreError} InvalidCid, BlockNotFound, CorruptBlock.
   */
  block(cid: string): Promise<Uint8Array> {
    return this.#options.store.get(cid);
  }

  /**
   * Forgets the terminal passes of rounds below `round`, and their blocks.
   *
   * @returns Their keys.
   */
  async collectGarbage(round: number): Promise<string[]> {
    const keys = this.#passes.collectGarbage(round);
    for (const key of keys) await this.#forget(key);
    return keys;
  }

  /** Stops the clock and waits for what is being aggregated. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await Promise.all(this.#running);
  }

  async #forget(key: string): Promise<void> {
    const { store } = this.#options;
    const held = this.#results.get(key)?.held ?? [];
    const used = this.#used.get(key) ?? [];
    this.#results.delete(key);
    this.#used.delete(key);
    this.#shapes.delete(key);
    for (const cid of held) await store.release(cid);
    for (const cid of [...held, ...used]) await store.forget(cid);
  }

  #aggregate(key: string): void {
    let contributions: readonly (readonly Contribution[])[];
    try {
      contributions = this.#passes.aggregate(key, Date.now());
    } catch (error) {
      // Two submissions can find the pass ready; the first one's aggregation is under way.
      if (error instanceof PassError) return;
      throw error;
    }
    const all = this.#passes.contributions(key);
    const run = this.#fold(key, contributions)
      .catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        this.#passes.fail(key, reason);
        log.error("pass {key} failed: {reason}", { key, reason });
      })
      .then(() => this.#letGo(key, all))
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
    this.#arm();
  }

  async #fold(key: string, peers: readonly (readonly Contribution[])[]): Promise<void> {
    const { spec } = this.#passes.status(key);
    const plan = planAggregation(key, peers, this.#policy);
    const { voices, trim } = plan;
    const numSamples = voices.reduce((sum, { layers }) => sum + layers[0]!.numSamples, 0);
    const layers: PassResult["layers"][number][] = [];
    for (const [i, { name, shape }] of spec.layers.entries()) {
      const weighted = [];
      for (const { layers, scale } of voices) {
        const { cid, numSamples } = layers[i]!;
        const block = await this.#options.store.get(cid);
        const { valuesAt, valueCount } = parseGarw(block);
        const values = block.subarray(valuesAt, valuesAt + 4 * valueCount);
        weighted.push({ values, numSamples, scale });
      }
      const values = trim === undefined
        ? await foldedMean(this.#options.kernel, weighted)
        : await trimmedMean(weighted, trim);
      await checkValues(`averaging layer "${name}" of pass ${key}`, bytesOf(values), {
        ...spec,
        maxNorm: undefined,
      });
      const dims = shape ?? this.#shapes.get(key)?.get(name) ?? [values.length];
      layers.push({ name, shape: dims, values });
    }
    const result: PassResult = { key, spec, numSamples, layers };
    const cid = await this.#keep(result, plan);
    this.#tell(result);
    this.#passes.complete(key, cid);
    log.info("pass {key} complete: {peers} peers, {samples} samples", {
      key,
      peers: voices.length,
      samples: numSamples,
      cid,
    });
    this.#report(key, plan);
  }

  /** Says what was done about contributors who are not trusted. */
  #report(key: string, { voices, trim, clipped }: AggregationPlan): void {
    const { aggregation, clipNorm } = this.#policy;
    for (const { peer, norm } of clipped) {
      log.warning("pass {key}: the contribution of {peer} has a norm of {norm}, scaled to {most}", {
        key,
        peer,
        norm,
        most: clipNorm,
      });
    }
    if (trim === undefined) return;
    const fields = { key, kind: aggregation.kind, trim, peers: voices.length };
    log.info("pass {key}: {kind}, {trim} of {peers} values left out at either end", fields);
    if (trim > 0) return;
    log.warning(
      "pass {key}: of {peers} contributions {kind} leaves out none, so that each of them counts",
      fields,
    );
  }

  #tell(result: PassResult): void {
    try {
      this.#options.onComplete?.(result);
    } catch (error) {
      log.error("handing on the result of pass {key}: {error}", { key: result.key, error });
    }
  }

  /** Keeps the result: each layer, and all of them in one block. Returns that one's name. */
  async #keep({ key, layers, numSamples }: PassResult, plan: AggregationPlan): Promise<string> {
    const { store } = this.#options;
    const held: string[] = [];
    const put = async (values: Float32Array): Promise<string> => {
      const block = canonicalGarw(values, numSamples);
      const cid = await nameOf(block);
      await store.put(cid, block);
      held.push(cid);
      return cid;
    };
    try {
      const cids = new Map<string, string>();
      for (const { name, values } of layers) cids.set(name, await put(values));
      const cid = layers.length === 1 ? held[0]! : await put(flatten(layers));
      const { trim, clipped } = plan;
      this.#results.set(key, { numSamples, cids, held, plan: { trim, clipped } });
      return cid;
    } catch (error) {
      for (const cid of held) await store.release(cid);
      throw error;
    }
  }

  /** A terminal pass's contributions stay as long as there is room for them. */
  async #letGo(key: string, contributions: readonly Contribution[]): Promise<void> {
    this.#used.set(key, contributions.map(({ cid }) => cid));
    for (const { cid } of contributions) await this.#options.store.release(cid);
  }

  /** Sets the timer to the next deadline. */
  #arm(): void {
    clearTimeout(this.#timer);
    const next = this.#passes.nextDeadline();
    if (next === undefined || this.#closed) return;
    const ms = Math.min(Math.max(next - Date.now(), 0), MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.#expire(), ms);
  }

  #expire(): void {
    const { failed, quorate } = this.#passes.expire(Date.now());
    for (const key of failed) {
      log.warning("pass {key} failed: its deadline is over", { key });
      const run = this.#letGo(key, this.#passes.contributions(key))
        .finally(() => this.#running.delete(run));
      this.#running.add(run);
    }
    for (const key of quorate) this.#aggregate(key);
    this.#arm();
  }
}

function bytesOf(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** The block as names are computed over; itself where it is so already. */
function canonicalOf(block: Uint8Array, layout: GarwLayout): Uint8Array {
  const { shape, valueCount, valuesAt, numSamples } = layout;
  if (shape.length === 1 && shape[0] === valueCount) return block;
  const values = new Float32Array(valueCount);
  bytesOf(values).set(block.subarray(valuesAt, valuesAt + 4 * valueCount));
  return canonicalGarw(values, numSamples);
}
