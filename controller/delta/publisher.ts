/**
 * The delta publisher as the controller sees it: hands each consensus to a thread, and never waits for it.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { KeyRing } from "../../delta/keys.ts";
import type { RoundKind } from "../../wire/round_frame.ts";
import type { PublisherPlan, PublisherTelemetry } from "./core.ts";
import { CLAIM, type PublisherOrder, type PublisherReport, type TensorSpan } from "./messages.ts";

const log = getLogger(["tierfold", "delta"]);

/** Up to so many bytes a consensus is copied at once; larger ones are read by the thread in place. */
const COPY_BYTES = 1024 ** 2;
/** How long the thread may take to stop, beyond the time to flush, in milliseconds. */
const STOP_MS = 5_000;

/** How a {@link DeltaPublisher} works. */
export interface PublisherOptions extends PublisherPlan {
  /** Publish every n-th Model round of each schema; 1 unless given. */
  readonly every?: number;
}

/** A consensus to publish, where it lies. */
export interface ConsensusView {
  /** Only Model rounds are published. */
  readonly kind: RoundKind;
  /** Its total mass; a consensus of mass 0 is none. */
  readonly mass: number;
  /** The memory that the spans point into. */
  readonly memory: Uint8Array<ArrayBufferLike>;
  /** The tensors, as offsets into `memory`. */
  readonly tensors: readonly TensorSpan[];
}

/** What the controller's loop did with the consensuses. */
export interface PublisherCounts {
  /** Published. */
  published: number;
  /** Passed over because the thread was still busy with the one before; the next one makes up for it. */
  skipped: number;
  /** Passed over because their memory was needed again before the thread had read it. */
  revoked: number;
  /** Refused by the publisher: see the telemetry's last error. */
  refused: number;
}

/**
 * Publishes consensuses without making a round wait. The thread reads a large consensus in the memory
 * where it lies; when the controller needs that memory before the thread has read it all, the controller
 * takes it back and this consensus is passed over. A change is always told against what was published
 * last, so passing one over loses nothing: the next one tells both changes in one.
 */
export class DeltaPublisher {
  readonly #worker: Worker;
  readonly #every: number;
  readonly #stopped = Promise.withResolvers<void>();
  /** Rounds to let pass before the next one is due, by schema. */
  readonly #left = new Map<string, number>();
  #underWay = "";
  readonly #counts: PublisherCounts = { published: 0, skipped: 0, revoked: 0, refused: 0 };
  #telemetry: PublisherTelemetry | undefined;
  #busy = false;
  #closed = false;

  private constructor(options: PublisherOptions) {
    this.#every = options.every ?? 1;
    this.#worker = new Worker(new URL("./worker.ts", import.meta.url), {
      type: "module",
      name: "tierfold-delta",
    });
    this.#worker.onmessage = ({ data }: MessageEvent<PublisherReport>) => this.#hear(data);
    const { peers, keys, snapshots } = options;
    this.#tell({ type: "start", plan: { peers, keys, snapshots } });
  }

  /**
   * Starts the thread, which starts to connect to the peers.
   *
   * @throws {Error} when a key file cannot be read.
   */
  static start(options: PublisherOptions): DeltaPublisher {
    const { current } = new KeyRing(options.keys).keys();
    if (current === undefined) {
      log.warning("deltas go out unsigned: there is no fleet key; set AXIOM_FLEET_KEY");
    }
    return new DeltaPublisher(options);
  }

  /**
   * Publishes a consensus if it is due.
   *
   * @returns Takes the memory back; to be called, without waiting, before it is written again.
   *   Undefined when the memory is not needed any more.
   */
  offer(view: ConsensusView): (() => void) | undefined {
    const { kind, mass, memory, tensors } = view;
    if (this.#closed || kind !== "model" || mass === 0) return undefined;
    // Parameters and buffers take turns, and count apart.
    const schema = `${tensors.length} ${memory.length}`;
    const left = this.#left.get(schema) ?? 0;
    if (left > 0) {
      this.#left.set(schema, left - 1);
      return undefined;
    }
    if (this.#busy) {
      this.#counts.skipped++;
      return undefined;
    }
    this.#busy = true;
    this.#underWay = schema;
    this.#left.set(schema, this.#every - 1);
    if (!(memory.buffer instanceof SharedArrayBuffer) || memory.length <= COPY_BYTES) {
      const { buffer } = Uint8Array.from(memory);
      this.#tell({ type: "consensus", tensors, buffer, claim: undefined }, [buffer]);
      return undefined;
    }
    const claim = new SharedArrayBuffer(4);
    const moved = tensors.map((span) => ({ ...span, at: span.at + memory.byteOffset }));
    this.#tell({ type: "consensus", tensors: moved, buffer: memory.buffer, claim });
    return () => {
      Atomics.compareExchange(new Int32Array(claim), 0, CLAIM.open, CLAIM.revoked);
    };
  }

  /** What happened to the consensuses that were offered. */
  get counts(): Readonly<PublisherCounts> {
    return { ...this.#counts };
  }

  /** What the thread reported last; undefined until it has started. */
  get telemetry(): PublisherTelemetry | undefined {
    return this.#telemetry;
  }

  /**
   * Sends what waits for connected peers, and stops.
   *
   * @param flushMs How long that may take, in milliseconds.
   */
  async close(flushMs = 2_000): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#tell({ type: "stop", flushMs });
    const timer = setTimeout(() => {
      log.warning("the publisher's thread did not stop in time");
      this.#stopped.resolve();
    }, flushMs + STOP_MS);
    await this.#stopped.promise;
    clearTimeout(timer);
    this.#worker.terminate();
  }

  #hear(report: PublisherReport): void {
    switch (report.type) {
      case "idle":
        this.#busy = false;
        this.#counts[report.outcome]++;
        if (report.outcome === "revoked") this.#left.set(this.#underWay, 0);
        break;
      case "telemetry":
        this.#telemetry = report.telemetry;
        break;
      case "event":
        log[report.level]("{text}", { text: report.text });
        break;
      case "stopped":
        this.#stopped.resolve();
        break;
    }
  }

  #tell(order: PublisherOrder, transfer: Transferable[] = []): void {
    this.#worker.postMessage(order, transfer);
  }
}
