/**
 * What waits for which peer, and when a lost peer is tried again.
 *
 * @module
 */
import { invariant } from "../../wire/errors.ts";
import { type DweTelemetry, newTelemetry } from "../../delta/telemetry.ts";
import type { DeltaEngine, Fragment, Snapshot } from "./engine.ts";

/** Fragments that may wait for one peer. */
export const MAX_QUEUE = 128;
/** Bytes of fragments that may wait for all peers together; a fragment counts once. */
const MAX_QUEUE_BYTES = 256 * 1024 ** 2;
/** Pause before a lost peer is tried again, in milliseconds: the first, and the longest. */
const BACKOFF_MS = { first: 250, longest: 30_000 };
/** A connection that lived so long was a good one: the pauses start over. */
const GOOD_MS = 10_000;

interface SnapshotItem {
  readonly snapshot: Snapshot;
  readonly nonce: string;
  readonly firstSequence: bigint;
  part: number;
  sealed: Fragment | undefined;
}

interface Peer {
  readonly address: string;
  state: "idle" | "dialing" | "open";
  /** When to dial, in milliseconds; meaningful while idle. */
  retryAtMs: number;
  openedAtMs: number;
  failures: number;
  /** It asked for a snapshot once: what it misses it can ask for again, so nothing waits for it. */
  replica: boolean;
  /** Nonce of the snapshot that it waits for. */
  wants: string | undefined;
  snapshot: SnapshotItem | undefined;
  readonly queue: Fragment[];
  dropped: number;
  sent: number;
  lastError: string | undefined;
}

/** A peer as others see it. */
export interface PeerTelemetry {
  /** Its host:port. */
  readonly address: string;
  /** Whether it is connected. */
  readonly state: "idle" | "dialing" | "open";
  /** Whether it asked for a snapshot, as Tierfold's replicas do. */
  readonly replica: boolean;
  /** Fragments that wait for it. */
  readonly waiting: number;
  /** Fragments that were dropped because its queue was full. */
  readonly dropped: number;
  /** Fragments written to it. */
  readonly sent: number;
  /** The last thing that went wrong with it. */
  readonly lastError: string | undefined;
}

/**
 * The outbound side of a DWE bus. Each peer is this machine:
 *
 *           dialing              connected
 *     idle ---------> dialing ------------> open
 *      ^                 |                    |
 *      +---- failed -----+------ failed ------+        idle until its back-off is over
 *
 * What waits for a peer waits in all states, at most {@link MAX_QUEUE} fragments; what does not fit is
 * dropped and counted. A snapshot goes before what is queued after it, and is sealed part by part, so
 * that it costs one copy of the model however many peers want it. Time comes in as an argument.
 */
export class DeltaBus {
  readonly #peers: readonly Peer[];
  readonly #telemetry: DweTelemetry = newTelemetry();
  readonly #random: () => number;
  readonly #maxQueueBytes: number;
  /** In how many queues a fragment is. */
  readonly #held = new Map<Fragment, number>();
  #bytes = 0;
  #sequence = 0n;

  /**
   * Starts with all peers to be dialed at once.
   *
   * @param addresses host:port of each peer.
   * @param options.random Gives numbers in [0, 1), for the back-off.
   */
  constructor(
    addresses: readonly string[],
    options: { random?: () => number; maxQueueBytes?: number } = {},
  ) {
    this.#random = options.random ?? Math.random;
    this.#maxQueueBytes = options.maxQueueBytes ?? MAX_QUEUE_BYTES;
    this.#peers = [...new Set(addresses)].map((address) => ({
      address,
      state: "idle",
      retryAtMs: 0,
      openedAtMs: 0,
      failures: 0,
      replica: false,
      wants: undefined,
      snapshot: undefined,
      queue: [],
      dropped: 0,
      sent: 0,
      lastError: undefined,
    }));
  }

  /** The peers' addresses. */
  get addresses(): readonly string[] {
    return this.#peers.map(({ address }) => address);
  }

  /** The next sequence of this process. */
  readonly next = (): bigint => {
    this.#sequence++;
    return this.#sequence;
  };

  /** Queues a fragment for every peer; full queues drop it. */
  offer(fragment: Fragment): void {
    for (const peer of this.#peers) {
      if (peer.wants !== undefined || (peer.replica && peer.state !== "open")) continue;
      const known = this.#held.has(fragment);
      const crowded = !known && this.#bytes + fragment.bytes.length > this.#maxQueueBytes;
      if (peer.queue.length >= MAX_QUEUE || (crowded && peer.queue.length > 0)) {
        peer.dropped++;
        const bound = crowded ? `${this.#bytes} bytes wait for all peers` : `${MAX_QUEUE} wait`;
        this.#fault(
          peer,
          `the outbound queue for ${peer.address} is full (${bound}): a fragment of ` +
            `${fragment.sessionId} was dropped`,
        );
        continue;
      }
      peer.queue.push(fragment);
      this.#hold(fragment);
      this.#queued(fragment.sessionId, fragment.bytes.length);
    }
  }

  /** Takes note that a peer asks for a snapshot: what waits for it is of no use any more. */
  want(address: string, nonce: string): void {
    const peer = this.#peer(address);
    this.#clear(peer);
    peer.replica = true;
    peer.wants = nonce;
  }

  /**
   * Gives snapshots to those who want one. There is one at a time: a newer one waits until the one under
   * way is through.
   *
   * @returns The peers that got one.
   */
  serve(engine: DeltaEngine): string[] {
    const wanting = this.#peers.filter(({ wants }) => wants !== undefined);
    if (wanting.length === 0) return [];
    const live = this.#peers.find(({ snapshot }) => snapshot !== undefined)?.snapshot?.snapshot;
    if (live !== undefined && live.version !== engine.version) return [];
    const snapshot = live ?? engine.snapshot();
    if (snapshot === undefined) return [];
    for (const peer of wanting) {
      const firstSequence = this.#sequence + 1n;
      this.#sequence += BigInt(snapshot.parts);
      peer.snapshot = {
        snapshot,
        nonce: peer.wants!,
        firstSequence,
        part: 1,
        sealed: undefined,
      };
      peer.wants = undefined;
      this.#telemetry.queued += snapshot.parts;
    }
    return wanting.map(({ address }) => address);
  }

  /** What to write to a peer next; the same until {@link DeltaBus.sent} or a failure. */
  head(address: string, key: Uint8Array | undefined): Fragment | undefined {
    const { snapshot: item, queue } = this.#peer(address);
    if (item === undefined) return queue[0];
    const sequence = item.firstSequence + BigInt(item.part - 1);
    item.sealed ??= item.snapshot.seal(item.part, item.nonce, sequence, key);
    return item.sealed;
  }

  /** Takes note that a fragment was written to a peer, even if it is not its head any more. */
  sent(address: string, fragment: Fragment): void {
    const peer = this.#peer(address);
    peer.sent++;
    this.#telemetry.sent++;
    this.#telemetry.lastSession = fragment.sessionId;
    this.#telemetry.lastFragmentBytes = fragment.bytes.length;
    const item = peer.snapshot;
    if (item !== undefined && item.sealed === fragment) {
      item.sealed = undefined;
      item.part++;
      if (item.part > item.snapshot.parts) peer.snapshot = undefined;
    } else if (peer.queue[0] === fragment) {
      peer.queue.shift();
      this.#release(fragment);
    }
  }

  /** When to dial a peer, in milliseconds; undefined unless it is idle. */
  dialAt(address: string): number | undefined {
    const { state, retryAtMs } = this.#peer(address);
    return state === "idle" ? retryAtMs : undefined;
  }

  /** Takes note that a peer is being dialed. */
  dialing(address: string): void {
    this.#peer(address).state = "dialing";
  }

  /** Takes note that a peer is connected. */
  connected(address: string, nowMs: number): void {
    const peer = this.#peer(address);
    peer.state = "open";
    peer.openedAtMs = nowMs;
  }

  /** Takes note that a peer could not be reached or was lost. */
  failed(address: string, error: string, nowMs: number): void {
    const peer = this.#peer(address);
    const good = peer.state === "open" && nowMs - peer.openedAtMs >= GOOD_MS;
    peer.failures = good ? 1 : peer.failures + 1;
    const full = Math.min(BACKOFF_MS.first * 2 ** (peer.failures - 1), BACKOFF_MS.longest);
    // Peers that were lost together are not dialed together.
    peer.retryAtMs = nowMs + full * (0.5 + this.#random() / 2);
    peer.state = "idle";
    // It asks again on its next connection.
    peer.wants = undefined;
    peer.snapshot = undefined;
    if (peer.replica) this.#clear(peer);
    this.#fault(peer, error);
  }

  /** Takes note of a fragment that came from a peer. */
  heard(sessionId: string, bytes: number): void {
    this.#telemetry.received++;
    this.#telemetry.lastSession = sessionId;
    this.#telemetry.lastFragmentBytes = bytes;
  }

  /** Takes note of bytes from a peer that are no request. */
  rejected(address: string, error: string): void {
    this.#telemetry.received++;
    this.#telemetry.rejected++;
    this.#fault(this.#peer(address), error);
  }

  /** Takes note of something that went wrong with all of them. */
  broken(error: string): void {
    this.#telemetry.lastError = error;
  }

  /** Whether anything waits for a connected peer. */
  get busy(): boolean {
    return this.#peers.some(({ state, queue, snapshot }) =>
      state === "open" && (queue.length > 0 || snapshot !== undefined)
    );
  }

  /** The counters of this side. */
  get telemetry(): DweTelemetry {
    return { ...this.#telemetry };
  }

  /** Every peer. */
  get peers(): PeerTelemetry[] {
    return this.#peers.map((peer) => ({
      address: peer.address,
      state: peer.state,
      replica: peer.replica,
      waiting: peer.queue.length +
        (peer.snapshot === undefined ? 0 : peer.snapshot.snapshot.parts - peer.snapshot.part + 1),
      dropped: peer.dropped,
      sent: peer.sent,
      lastError: peer.lastError,
    }));
  }

  #peer(address: string): Peer {
    const peer = this.#peers.find((candidate) => candidate.address === address);
    invariant(peer !== undefined, `${address} is one of the peers`);
    return peer;
  }

  #queued(sessionId: string, bytes: number): void {
    this.#telemetry.queued++;
    this.#telemetry.lastSession = sessionId;
    this.#telemetry.lastFragmentBytes = bytes;
  }

  #fault(peer: Peer, error: string): void {
    peer.lastError = error;
    this.#telemetry.lastError = error;
  }

  #clear(peer: Peer): void {
    for (const fragment of peer.queue.splice(0)) this.#release(fragment);
    peer.snapshot = undefined;
  }

  #hold(fragment: Fragment): void {
    const count = this.#held.get(fragment) ?? 0;
    if (count === 0) this.#bytes += fragment.bytes.length;
    this.#held.set(fragment, count + 1);
  }

  #release(fragment: Fragment): void {
    const count = this.#held.get(fragment);
    invariant(count !== undefined, "a fragment is released as often as it was held");
    if (count > 1) {
      this.#held.set(fragment, count - 1);
      return;
    }
    this.#held.delete(fragment);
    this.#bytes -= fragment.bytes.length;
  }
}
