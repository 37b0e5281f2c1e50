/**
 * Which gradients of which backward pass have come, and what a pass does next.
 *
 * @module
 */
import { invariant } from "../../wire/errors.ts";
import { GARW_MAX_SAMPLES } from "../../wire/garw.ts";
import {
  checkSpec,
  type Contribution,
  isName,
  MAX_PEER_NAME,
  PassError,
  passKey,
  type PassSpec,
  type PassState,
  type PassStatus,
} from "./pass.ts";

interface Pass {
  readonly key: string;
  readonly spec: PassSpec;
  readonly startedAtMs: number;
  readonly deadlineAtMs: number;
  /** peer -> layer -> contribution. */
  readonly byPeer: Map<string, Map<string, Contribution>>;
  /** Peers that have delivered every layer. */
  received: number;
  /** Sum of num_samples over peers. */
  samples: number;
  /** Undefined while it collects. */
  later: "Aggregating" | { cid: string } | { reason: string } | undefined;
}

/** What a submission did. */
export interface Submission {
  /** True when the very same contribution was there already, and nothing changed. */
  readonly repeated: boolean;
  /** True when the pass has everything it waits for. */
  readonly ready: boolean;
}

/**
 * The passes of a controller, each of them this machine:
 *
 *     start --> Pending --first contribution--> CollectingGradients
 *                  |                              |   |
 *                  |  deadline, below the quorum  |   |  aggregate: all expected peers are in,
 *                  |  or fail                     |   |  or the deadline passed with a quorum
 *                  v                              |   v
 *               Failed <--------------------------+  Aggregating --complete--> Complete
 *                  ^                                  |
 *                  +--------------- fail -------------+
 *
 * Failed and Complete are terminal; all others are active. A peer is in a pass with every layer or not
 * at all: it counts as received once it has delivered them all, so that all layers of a result come
 * from the same peers and samples, as those of a frame do. Time comes in as an argument.
 */
export class PassCoordinator {
  readonly #passes = new Map<string, Pass>();
  readonly #maxPasses: number;

  /** Takes the most passes that may be held at once, terminal ones included. */
  constructor(options: { maxPasses: number }) {
    this.#maxPasses = options.maxPasses;
  }

  /**
   * Starts a pass.
   *
   * @throws {PassError} InvalidPass, PassExists, TooManyPasses.
   */
  start(spec: PassSpec, nowMs: number): PassStatus {
    checkSpec(spec);
    const key = passKey(spec.round, spec.initiator);
    if (this.#passes.has(key)) {
      throw new PassError(
        "PassExists",
        `starting pass ${key}: it was started before and is ${this.status(key).state.kind}`,
      );
    }
    if (this.full) {
      throw new PassError(
        "TooManyPasses",
        `starting pass ${key}: ${this.#passes.size} passes are held, the most allowed; remove old ` +
          "rounds first",
      );
    }
    const deadlineAtMs = nowMs + spec.deadlineMs;
    this.#passes.set(key, {
      key,
      spec,
      startedAtMs: nowMs,
      deadlineAtMs,
      byPeer: new Map(),
      received: 0,
      samples: 0,
      later: undefined,
    });
    return this.status(key);
  }

  /**
   * Checks whether a contribution of `peer` to `layer` may come at all, before its bytes are read.
   *
   * @throws {PassError} PassNotFound, PassAlreadyTerminal, UnknownLayer, UnknownPeer.
   */
  admit(key: string, peer: string, layer: string): PassStatus {
    const pass = this.#find(key);
    const doing = `contributing layer "${layer}" of "${peer}" to pass ${key}`;
    if (typeof pass.later === "object") {
      const { kind } = this.#state(pass);
      throw new PassError("PassAlreadyTerminal", `${doing}: the pass is ${kind}`);
    }
    if (!pass.spec.layers.some(({ name }) => name === layer)) {
      const names = pass.spec.layers.slice(0, 8).map(({ name }) => name).join(", ");
      throw new PassError("UnknownLayer", `${doing}: its layers are ${names}`);
    }
    if (!isName(peer, MAX_PEER_NAME) || pass.spec.peers?.includes(peer) === false) {
      throw new PassError("UnknownPeer", `${doing}: this peer is not among those of the pass`);
    }
    return this.#status(pass);
  }

  /**
   * Takes note of a contribution.
   *
   * @throws {PassError} as {@link PassCoordinator.admit} does; ConflictingContribution when the peer
   *   delivered another block for this layer; PassAggregating when it came too late; InvalidSamples;
   *   TooManyPeers.
   */
  submit(key: string, contribution: Contribution): Submission {
    const { peer, layer, cid, numSamples } = contribution;
    this.admit(key, peer, layer);
    const pass = this.#find(key);
    const doing = `contributing layer "${layer}" of "${peer}" to pass ${key}`;
    const layers = pass.byPeer.get(peer);
    const before = layers?.get(layer);
    if (before !== undefined) {
      if (before.cid === cid && before.numSamples === numSamples) {
        return { repeated: true, ready: this.ready(key) };
      }
      throw new PassError(
        "ConflictingContribution",
        `${doing}: it delivered ${before.cid} before, and now ${cid}; the first one stays`,
      );
    }
    if (pass.later === "Aggregating") {
      throw new PassError("PassAggregating", `${doing}: the pass is being aggregated without it`);
    }
    this.#checkSamples(pass, contribution, layers, doing);
    if (layers === undefined && pass.byPeer.size >= 2 * pass.spec.expected + 64) {
      throw new PassError(
        "TooManyPeers",
        `${doing}: ${pass.byPeer.size} peers delivered something, ${pass.spec.expected} are expected`,
      );
    }
    const mine = layers ?? new Map<string, Contribution>();
    if (layers === undefined) {
      pass.byPeer.set(peer, mine);
      pass.samples += numSamples;
    }
    mine.set(layer, contribution);
    if (mine.size === pass.spec.layers.length) pass.received++;
    return { repeated: false, ready: this.ready(key) };
  }

  #checkSamples(
    pass: Pass,
    { numSamples }: Contribution,
    layers: ReadonlyMap<string, Contribution> | undefined,
    doing: string,
  ): void {
    const most = Math.min(pass.spec.maxSamples ?? GARW_MAX_SAMPLES, GARW_MAX_SAMPLES);
    if (!Number.isInteger(numSamples) || numSamples < 0 || numSamples > most) {
      throw new PassError(
        "InvalidSamples",
        `${doing}: num_samples is ${numSamples}, not an integer in 0..${most}`,
      );
    }
    const other = layers?.values().next().value;
    if (other !== undefined && other.numSamples !== numSamples) {
      throw new PassError(
        "InvalidSamples",
        `${doing}: num_samples is ${numSamples}, but ${other.numSamples} for layer "${other.layer}"`,
      );
    }
    // The aggregated block carries the total as a u32.
    if (layers === undefined && pass.samples + numSamples > GARW_MAX_SAMPLES) {
      throw new PassError(
        "InvalidSamples",
        `${doing}: ${numSamples} samples on top of ${pass.samples} are more than ${GARW_MAX_SAMPLES}`,
      );
    }
  }

  /**
   * Whether a pass has all the peers that it expects and still collects.
   *
   * @throws {PassError} PassNotFound.
   */
  ready(key: string): boolean {
    const pass = this.#find(key);
    return pass.later === undefined && pass.received >= pass.spec.expected;
  }

  /**
   * Moves a pass to Aggregating.
   *
   * @returns What is to be aggregated: of each peer that delivered every layer, its contributions in
   *   the order of the layers; peers in the order of their names' code units, so that the same
   *   contributions give the same bits, whatever the order in which they came.
   * @throws {PassError} PassNotFound, PassAlreadyTerminal, PassAggregating, and NotReady when peers are
   *   missing and neither the deadline nor a quorum allows to go on.
   */
  aggregate(key: string, nowMs: number): readonly (readonly Contribution[])[] {
    const pass = this.#find(key);
    this.#mustCollect(pass, "aggregating");
    if (!this.ready(key) && !this.#quorate(pass, nowMs)) {
      throw new PassError(
        "NotReady",
        `aggregating pass ${key}: ${pass.received} of ${pass.spec.expected} peers are in`,
      );
    }
    pass.later = "Aggregating";
    return [...pass.byPeer.entries()]
      .filter(([, layers]) => layers.size === pass.spec.layers.length)
      .sort(([a], [b]) => a < b ? -1 : 1)
      .map(([, layers]) => pass.spec.layers.map(({ name }) => layers.get(name)!));
  }

  /**
   * Ends a pass that is being aggregated.
   *
   * @param cid Name of the aggregated block.
   * @throws {PassError} PassNotFound, PassAlreadyTerminal, NotReady.
   */
  complete(key: string, cid: string): void {
    const pass = this.#find(key);
    if (typeof pass.later === "object") this.#mustCollect(pass, "completing");
    if (pass.later !== "Aggregating") {
      throw new PassError("NotReady", `completing pass ${key}: it is not being aggregated`);
    }
    pass.later = { cid };
  }

  /**
   * Ends an active pass without a result.
   *
   * @throws {PassError} PassNotFound, PassAlreadyTerminal.
   */
  fail(key: string, reason: string): void {
    const pass = this.#find(key);
    if (typeof pass.later === "object") this.#mustCollect(pass, "failing");
    pass.later = { reason };
  }

  /**
   * Lets time pass: collecting passes whose deadline is over fail, or, with enough peers for their
   * quorum, are to be aggregated by the caller.
   *
   * @returns Keys of the passes that failed, and of those to aggregate.
   */
  expire(nowMs: number): { failed: string[]; quorate: string[] } {
    const failed: string[] = [];
    const quorate: string[] = [];
    for (const pass of this.#passes.values()) {
      if (pass.later !== undefined || nowMs < pass.deadlineAtMs) continue;
      if (this.#quorate(pass, nowMs)) {
        quorate.push(pass.key);
        continue;
      }
      const { expected, quorum, deadlineMs } = pass.spec;
      const needed = quorum === undefined ? `${expected}` : `${quorum} (the quorum) of ${expected}`;
      pass.later = {
        reason:
          `after ${deadlineMs} ms ${pass.received} peers had delivered every layer, ${needed} ` +
          "were needed",
      };
      failed.push(pass.key);
    }
    return { failed, quorate };
  }

  /** When {@link PassCoordinator.expire} has something to do next, in milliseconds since 1970. */
  nextDeadline(): number | undefined {
    let next: number | undefined;
    for (const { later, deadlineAtMs } of this.#passes.values()) {
      if (later === undefined && !(next !== undefined && next <= deadlineAtMs)) next = deadlineAtMs;
    }
    return next;
  }

  /**
   * Where a pass stands.
   *
   * @throws {PassError} PassNotFound.
   */
  status(key: string): PassStatus {
    return this.#status(this.#find(key));
  }

  /** All passes, oldest first. */
  list(): PassStatus[] {
    return [...this.#passes.values()].map((pass) => this.#status(pass));
  }

  /**
   * What has come for a pass, in order of arrival by peer.
   *
   * @throws {PassError} PassNotFound.
   */
  contributions(key: string): Contribution[] {
    return [...this.#find(key).byPeer.values()].flatMap((layers) => [...layers.values()]);
  }

  /** How many passes are not terminal. */
  get activeCount(): number {
    let count = 0;
    for (const { later } of this.#passes.values()) if (typeof later !== "object") count++;
    return count;
  }

  /**
   * Forgets the terminal passes of rounds below `round`; active ones stay.
   *
   * @returns Their keys.
   */
  collectGarbage(round: number): string[] {
    const removed: string[] = [];
    for (const { key, spec, later } of this.#passes.values()) {
      if (spec.round < round && typeof later === "object") removed.push(key);
    }
    for (const key of removed) this.#passes.delete(key);
    return removed;
  }

  /**
   * Forgets the oldest terminal pass, to make room.
   *
   * @returns Its key; undefined when all passes are active.
   */
  dropOldestTerminal(): string | undefined {
    for (const { key, later } of this.#passes.values()) {
      if (typeof later !== "object") continue;
      this.#passes.delete(key);
      return key;
    }
    return undefined;
  }

  /** Whether no further pass can be started. */
  get full(): boolean {
    return this.#passes.size >= this.#maxPasses;
  }

  #find(key: string): Pass {
    const pass = this.#passes.get(key);
    if (pass === undefined) throw new PassError("PassNotFound", `there is no pass "${key}"`);
    return pass;
  }

  /** Throws unless the pass is Pending or CollectingGradients. */
  #mustCollect(pass: Pass, doing: string): void {
    if (pass.later === undefined) return;
    const { kind } = this.#state(pass);
    const code = pass.later === "Aggregating" ? "PassAggregating" : "PassAlreadyTerminal";
    throw new PassError(code, `${doing} pass ${pass.key}: it is ${kind}`);
  }

  #quorate({ spec, received, deadlineAtMs }: Pass, nowMs: number): boolean {
    return nowMs >= deadlineAtMs && spec.quorum !== undefined && received >= spec.quorum;
  }

  #state({ later, byPeer, received, spec }: Pass): PassState {
    invariant(received <= byPeer.size, "a peer that delivered everything delivered something");
    if (later === "Aggregating") return { kind: "Aggregating" };
    if (later !== undefined) {
      return "cid" in later
        ? { kind: "Complete", cid: later.cid }
        : { kind: "Failed", reason: later.reason };
    }
    if (byPeer.size === 0) return { kind: "Pending" };
    return { kind: "CollectingGradients", received, expected: spec.expected };
  }

  #status(pass: Pass): PassStatus {
    const { key, spec, received, startedAtMs, deadlineAtMs } = pass;
    return { key, spec, state: this.#state(pass), received, startedAtMs, deadlineAtMs };
  }
}
