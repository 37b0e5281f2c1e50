/**
 * The delta publisher as the controller sees it: hands each consensus to a thread, and never waits for it.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { KeyRing } from "../../delta/keys.ts";
import type { SlotReader } from "../../frames/slot.ts";
import type { RoundKind } from "../../wire/round_frame.ts";
import type { PublisherPlan, PublisherTelemetry } from "./core.ts";
import { RoundSign } from "./round_sign.ts";
import { CLAIM, type PublisherOrder, type PublisherReport, type TensorSpan } from "./messages.ts";

const log = getLogger(["tierfold", "delta"]);

const WORKER = new URL("./worker.ts", import.meta.url);
/** Where the modules lie that the thread imports. */
const SOURCES = new URL("../../", import.meta.url);

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
  /** Passed over because a later one came while the thread was busy. */
  skipped: number;
  /** Passed over because there was no other memory for the next round's result. */
  revoked: number;
  /** Refused by the publisher: see the telemetry's last error. */
  refused: number;
}

/** A consensus on its way to the thread. */
class Offer implements SlotReader {
  #done: boolean;
  readonly #actions: (() => void)[] = [];
  /** Where the memory is somebody else's: whether the thread may still read it. */
  readonly claim: SharedArrayBuffer | undefined;

  constructor(
    /** Tells parameters from buffers, which take turns. */
    readonly schema: string,
    readonly memory: Uint8Array<ArrayBufferLike>,
    readonly tensors: readonly TensorSpan[],
    inPlace: boolean,
  ) {
    this.#done = !inPlace;
    this.claim = inPlace ? new SharedArrayBuffer(4) : undefined;
  }

  get done(): boolean {
    return this.#done;
  }

  whenDone(action: () => void): void {
    if (this.#done) action();
    else this.#actions.push(action);
  }

  abandon(): void {
    if (this.claim === undefined) return;
    Atomics.compareExchange(new Int32Array(this.claim), 0, CLAIM.open, CLAIM.revoked);
    this.finish();
  }

  /** Gives the memory back. */
  finish(): void {
    this.#done = true;
    for (const action of this.#actions.splice(0)) action();
  }
}

/**
 * Publishes consensuses without making a round wait. The thread reads a large consensus in the memory
 * where it lies, and until it has, the next round's result goes elsewhere. Consensuses that come faster
 * than they can be published are passed over, all but the newest: a change is always told against what
 * was published last, so the next one tells all of them in one.
 */
export class DeltaPublisher {
  readonly #worker: Worker;
  readonly #every: number;
  readonly #stopped = Promise.withResolvers<void>();
  /** Rounds to let pass before the next one is due, by schema. */
  readonly #left = new Map<string, number>();
  readonly #counts: PublisherCounts = { published: 0, skipped: 0, revoked: 0, refused: 0 };
  /** What waits for the thread, the newest of each schema. */
  readonly #waiting = new Map<string, Offer>();
  /** What the thread works on. */
  #underWay: Offer | undefined;
  #telemetry: PublisherTelemetry | undefined;
  #closed = false;
  #idle: () => void = () => {};
  /** Tells the thread when a round is under way: it then works a small part of the time only. */
  readonly rounds: RoundSign = new RoundSign();

  private constructor(options: PublisherOptions) {
    this.#every = options.every ?? 1;
    this.#worker = new Worker(WORKER, {
      type: "module",
      name: "tierfold-delta",
    });
    this.#worker.onmessage = ({ data }: MessageEvent<PublisherReport>) => this.#hear(data);
    const { peers, keys, snapshots } = options;
    this.#tell({
      type: "start",
      plan: { peers, keys, snapshots },
      rounds: this.rounds.shared,
    });
  }

  /**
   * Starts the thread, which starts to connect to the peers.
   *
   * @throws {Error} when a key file cannot be read, or the thread may not be started.
   */
  static start(options: PublisherOptions): DeltaPublisher {
    // Without it the thread would end the process as soon as it is started.
    if (WORKER.protocol === "file:") {
      const { state } = Deno.permissions.querySync({ name: "read", path: SOURCES });
      if (state !== "granted") {
        throw new Error(
          "starting the delta publisher: its thread needs to read its modules; add --allow-read=" +
            SOURCES.pathname,
        );
      }
    }
    const { current } = new KeyRing(options.keys).keys();
    if (current === undefined) {
      log.warning("deltas go out unsigned: there is no fleet key; set AXIOM_FLEET_KEY");
    }
    return new DeltaPublisher(options);
  }

  /**
   * Publishes a consensus if it is due.
   *
   * @returns Who reads the memory on; undefined when it is not needed any more.
   */
  offer(view: ConsensusView): SlotReader | undefined {
    const { kind, mass, memory, tensors } = view;
    if (this.#closed || kind !== "model" || mass === 0) return undefined;
    const schema = `${tensors.length} ${memory.length}`;
    const left = this.#left.get(schema) ?? 0;
    if (left > 0) {
      this.#left.set(schema, left - 1);
      return undefined;
    }
    this.#left.set(schema, this.#every - 1);
    const inPlace = memory.buffer instanceof SharedArrayBuffer && memory.length > COPY_BYTES;
    const offer = new Offer(schema, inPlace ? memory : new Uint8Array(memory), tensors, inPlace);
    const passedOver = this.#waiting.get(schema);
    if (passedOver !== undefined) {
      this.#waiting.delete(schema);
      this.#counts.skipped++;
      passedOver.finish();
    }
    if (this.#underWay === undefined) this.#send(offer);
    else this.#waiting.set(schema, offer);
    return offer.done ? undefined : offer;
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
   * Publishes what waits, sends what waits for connected peers, and stops.
   *
   * @param flushMs How long that may take, in milliseconds.
   */
  async close(flushMs = 2_000): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const end = Date.now() + flushMs;
    const timer = setTimeout(() => {
      log.warning("the publisher's thread did not stop in time");
      this.#idle();
      this.#stopped.resolve();
    }, flushMs + STOP_MS);
    if (this.#underWay !== undefined) await new Promise<void>((resolve) => this.#idle = resolve);
    this.#tell({ type: "stop", flushMs: Math.max(0, end - Date.now()) });
    await this.#stopped.promise;
    clearTimeout(timer);
    this.#worker.terminate();
  }

  #send(offer: Offer): void {
    this.#underWay = offer;
    const { memory, tensors, claim } = offer;
    const { buffer, byteOffset } = memory;
    if (buffer instanceof SharedArrayBuffer) {
      const moved = tensors.map((span) => ({ ...span, at: span.at + byteOffset }));
      this.#tell({ type: "consensus", tensors: moved, buffer, claim });
    } else this.#tell({ type: "consensus", tensors, buffer, claim }, [buffer as ArrayBuffer]);
  }

  #finished(outcome: keyof PublisherCounts): void {
    this.#counts[outcome]++;
    const { schema } = this.#underWay!;
    this.#underWay = undefined;
    if (outcome === "revoked") this.#left.set(schema, 0);
    const next = this.#waiting.entries().next().value;
    if (next === undefined) return this.#idle();
    this.#waiting.delete(next[0]);
    this.#send(next[1]);
  }

  #hear(report: PublisherReport): void {
    switch (report.type) {
      case "copied":
        this.#underWay?.finish();
        break;
      case "idle":
        this.#finished(report.outcome);
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
