/**
 * The publisher itself, as it runs on its own thread: engine, bus and peers.
 *
 * @module
 */
import { Breather } from "../../transport/breather.ts";
import { KeyRing, type KeySources } from "../../delta/keys.ts";
import type { DweTelemetry } from "../../delta/telemetry.ts";
import { DeltaBus, type PeerTelemetry } from "./bus.ts";
import { type ConsensusTensor, DeltaEngine, UnpublishableError } from "./engine.ts";
import { PeerLoop } from "./peer_loop.ts";

/** What a publisher must know; can be sent to another thread. */
export interface PublisherPlan {
  /** host:port of each peer. */
  readonly peers: readonly string[];
  /** Where the fleet's keys come from. */
  readonly keys: KeySources;
  /** Whether replicas can ask for snapshots. */
  readonly snapshots: boolean;
}

/** What a publisher tells of itself. */
export interface PublisherTelemetry {
  /** The publisher's run. */
  readonly sid: string;
  /** The last published version; 0 before the first one. */
  readonly version: number;
  /** The counters of the bus. */
  readonly bus: DweTelemetry;
  /** Every peer. */
  readonly peers: readonly PeerTelemetry[];
}

/** How a {@link PublisherCore} fits into its thread. */
export interface PublisherSurroundings {
  /** Told of what an operator wants to know. */
  readonly onEvent: (level: "info" | "warning", text: string) => void;
  /** Waits until it may work on, having worked for so many milliseconds. */
  readonly makeRoom?: (workedMs: number) => Promise<void>;
}

/** Publishes consensuses to DWE peers. */
export class PublisherCore {
  readonly #bus: DeltaBus;
  readonly #engine: DeltaEngine;
  readonly #ring: KeyRing;
  readonly #loops: readonly PeerLoop[];
  readonly #stop = new AbortController();
  readonly #done: Promise<unknown>;
  readonly #onEvent: (level: "info" | "warning", text: string) => void;
  readonly #makeRoom: ((workedMs: number) => Promise<void>) | undefined;
  #publishing = false;
  #keyError: string | undefined;

  /**
   * Starts to connect to the peers.
   *
   * @throws {Error} when a key file cannot be read.
   */
  constructor(plan: PublisherPlan, { onEvent, makeRoom }: PublisherSurroundings) {
    this.#ring = new KeyRing(plan.keys);
    this.#bus = new DeltaBus(plan.peers);
    this.#engine = new DeltaEngine(crypto.randomUUID().replaceAll("-", "").slice(0, 16));
    this.#onEvent = onEvent;
    this.#makeRoom = makeRoom;
    const context = {
      bus: this.#bus,
      engine: this.#engine,
      ring: this.#ring,
      snapshots: plan.snapshots,
      serve: () => this.#serve(),
      onEvent,
    };
    this.#loops = this.#bus.addresses.map((address) => new PeerLoop(address, context));
    this.#done = Promise.all(this.#loops.map((loop) => loop.run(this.#stop.signal)));
  }

  /**
   * Publishes a consensus; the loop turns meanwhile. One at a time: the caller waits for the one before.
   *
   * @param tensors Its tensors; must stay unchanged until this has settled.
   * @returns Whether it was published.
   */
  async publish(tensors: readonly ConsensusTensor[]): Promise<boolean> {
    const { current } = this.#ring.keys();
    this.#watchKeys();
    this.#publishing = true;
    const breather = new Breather();
    let since = performance.now();
    try {
      const fragments = this.#engine.publish(tensors, this.#bus.next, current);
      await this.#makeRoom?.(performance.now() - since);
      since = performance.now();
      for (const fragment of fragments) {
        this.#bus.offer(fragment);
        this.#wake();
        await breather.breathe();
        await this.#makeRoom?.(performance.now() - since);
        since = performance.now();
      }
      return true;
    } catch (error) {
      if (!(error instanceof UnpublishableError)) throw error;
      const text = `a consensus was not published: ${error.message}`;
      this.#bus.broken(text);
      this.#onEvent("warning", text);
      return false;
    } finally {
      this.#publishing = false;
      this.#serve();
    }
  }

  /** What has happened so far. */
  get telemetry(): PublisherTelemetry {
    const { sid, version } = this.#engine;
    return { sid, version, bus: this.#bus.telemetry, peers: this.#bus.peers };
  }

  /** Writes what waits for connected peers, for at most `flushMs`, and stops. */
  async stop(flushMs: number): Promise<void> {
    const end = Date.now() + flushMs;
    while (this.#bus.busy && Date.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    this.#stop.abort();
    await this.#done;
  }

  /** Gives out snapshots; in the middle of a version there is none to give. */
  #serve(): void {
    if (this.#publishing) return;
    const served = this.#bus.serve(this.#engine);
    for (const address of served) {
      this.#onEvent("info", `a snapshot of version ${this.#engine.version} for ${address}`);
    }
    if (served.length > 0) this.#wake();
  }

  #watchKeys(): void {
    const { error } = this.#ring;
    if (error !== undefined && error !== this.#keyError) {
      this.#bus.broken(error);
      this.#onEvent("warning", `${error}; the fleet key read last stays in force`);
    }
    this.#keyError = error;
  }

  #wake(): void {
    for (const loop of this.#loops) loop.wake();
  }
}
