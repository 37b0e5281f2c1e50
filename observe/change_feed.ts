/**
 * Server-sent events: the state document once, then what changes.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { Recent } from "./recent.ts";
import type { GrowingList, StateChange, StateDocument } from "./state.ts";

/** The most often that a change is told, in milliseconds. */
const TICK_MS = 250;
/** How often sources are looked at that do not say when they change, in milliseconds. */
const LOOK_MS = 1_000;
/** How long a stream stays silent at most, in milliseconds. */
const ALIVE_MS = 15_000;
/** Streams served at once. */
const MAX_STREAMS = 64;
/** Bytes that may wait for one slow reader before its stream is ended. */
const MAX_WAITING_BYTES = 8 * 1024 ** 2;

/** What is told. */
export interface StateSource {
  /** Grows with every change of what the source is told. */
  readonly revision: number;
  /** The lists that only grow. */
  readonly lists: { readonly [List in GrowingList]: Recent<StateDocument[List][number]> };
  /** The rest of the document. */
  fields(): Omit<StateDocument, GrowingList>;
  /** All of it. */
  document(): StateDocument;
}

type Stream = ReadableStreamDefaultController<Uint8Array>;
type Field = keyof StateChange["set"];

/** Tells many readers of one source; does nothing while nobody reads. */
export class ChangeFeed {
  readonly #source: StateSource;
  readonly #streams = new Set<Stream>();
  readonly #encoder = new TextEncoder();
  /** Every field as it was told last. */
  readonly #told = new Map<Field, string>();
  #counts: Record<GrowingList, number> = { rounds: 0, losses: 0, events: 0 };
  #revision = -1;
  #lookedAt = 0;
  #wroteAt = 0;
  #timer: ReturnType<typeof setInterval> | undefined;
  #closed = false;

  constructor(source: StateSource) {
    this.#source = source;
  }

  /** How many read now. */
  get readers(): number {
    return this.#streams.size;
  }

  /** Answers GET /events; undefined when there are too many readers already. */
  open(): Response | undefined {
    if (this.#closed || this.#streams.size >= MAX_STREAMS) return undefined;
    let own: Stream;
    const body = new ReadableStream<Uint8Array>({
      start: (stream) => {
        own = stream;
        // Those who read already first hear what changed, so that all go on from the same document.
        if (this.#streams.size > 0) this.#tick(true);
        else this.#remember();
        this.#streams.add(stream);
        stream.enqueue(this.#encode("state", this.#source.document()));
        this.#timer ??= setInterval(() => this.#tick(false), TICK_MS);
      },
      cancel: () => this.#drop(own),
    }, new ByteLengthQueuingStrategy({ highWaterMark: MAX_WAITING_BYTES }));
    return new Response(body, {
      headers: { "content-type": "text/event-stream", "cache-control": "no-store" },
    });
  }

  /** Ends every stream. */
  close(): void {
    this.#closed = true;
    if (this.#streams.size > 0) this.#tick(true);
    for (const stream of [...this.#streams]) {
      this.#drop(stream);
      stream.close();
    }
  }

  #tick(atOnce: boolean): void {
    const now = performance.now();
    const { revision } = this.#source;
    const look = atOnce || revision !== this.#revision || now - this.#lookedAt >= LOOK_MS;
    const change = look ? this.#change() : undefined;
    if (look) this.#lookedAt = now;
    if (change !== undefined) this.#write(this.#encode("change", change), now);
    else if (now - this.#wroteAt >= ALIVE_MS) this.#write(this.#encode("alive", null), now);
  }

  /** What changed since it was told last; undefined when nothing did. */
  #change(): StateChange | undefined {
    const { lists, revision } = this.#source;
    const { nowMs, ...fields } = this.#source.fields();
    const set: Record<string, unknown> = {};
    const append: Record<string, unknown> = {};
    for (const field of Object.keys(fields) as Field[]) {
      const text = JSON.stringify(fields[field]);
      if (this.#told.get(field) === text) continue;
      this.#told.set(field, text);
      set[field] = fields[field];
    }
    for (const list of Object.keys(lists) as GrowingList[]) {
      const fresh = lists[list].since(this.#counts[list]);
      this.#counts[list] = lists[list].count;
      if (fresh.length > 0) append[list] = fresh;
    }
    this.#revision = revision;
    const nothing = Object.keys(set).length === 0 && Object.keys(append).length === 0;
    return nothing ? undefined : { nowMs, set, append };
  }

  /** Takes the source as it is for told. */
  #remember(): void {
    this.#change();
    this.#lookedAt = this.#wroteAt = performance.now();
  }

  #encode(
    event: "state" | "change" | "alive",
    data: StateDocument | StateChange | null,
  ): Uint8Array {
    return this.#encoder.encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }

  #write(bytes: Uint8Array, now: number): void {
    this.#wroteAt = now;
    for (const stream of [...this.#streams]) {
      if ((stream.desiredSize ?? 0) > 0) stream.enqueue(bytes);
      else {
        this.#drop(stream);
        stream.error(new Error("the reader is too slow"));
        getLogger(["tierfold", "http"]).info(
          "a reader of /events does not keep up: its stream ends after {bytes} bytes wait for it",
          { bytes: MAX_WAITING_BYTES },
        );
      }
    }
  }

  #drop(stream: Stream): void {
    this.#streams.delete(stream);
    if (this.#streams.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
