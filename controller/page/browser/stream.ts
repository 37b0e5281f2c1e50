/**
 * The stream of states: opened, followed, and opened anew for as long as the page is there.
 *
 *     connecting --state--> live --broken--> broken --pause over--> connecting
 *          |                                   ^
 *          +------------- refused, no answer --+
 *
 * @module
 */
/// <reference lib="dom" />
import { applyChange, type StateChange, type StateDocument } from "../../../observe/state.ts";

/** Pauses before the stream is opened anew, in milliseconds: the first, and the longest. */
const PAUSE_MS = { first: 1_000, longest: 10_000 };
/** How long the stream may say nothing: it says that it is alive more often, in milliseconds. */
const SILENCE_MS = 40_000;

/** How the stream stands. */
export interface Link {
  readonly state: "connecting" | "live" | "broken";
  /** When the last word of the stream came before it broke; undefined while none ever did. */
  readonly sinceMs: number | undefined;
  /** Why it could not be opened, where the controller said so. */
  readonly reason: string | undefined;
}

/** Follows the controller's state. */
export class Stream {
  readonly #onState: (state: StateDocument) => void;
  readonly #onLink: (link: Link) => void;
  #source: EventSource | undefined;
  #state: StateDocument | undefined;
  #heardMs: number | undefined;
  #pauseMs = PAUSE_MS.first;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #silence: ReturnType<typeof setTimeout> | undefined;

  /** Opens the stream. */
  constructor(onState: (state: StateDocument) => void, onLink: (link: Link) => void) {
    this.#onState = onState;
    this.#onLink = onLink;
    globalThis.addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.retryNow();
    });
    this.#open();
  }

  /** Opens a broken stream without waiting any longer. */
  retryNow(): void {
    if (this.#retry === undefined) return;
    clearTimeout(this.#retry);
    this.#open();
  }

  #open(): void {
    this.#retry = undefined;
    if (this.#heardMs === undefined) this.#tell("connecting");
    const source = this.#source = new EventSource("/events");
    source.addEventListener("state", ({ data }) => this.#hear(JSON.parse(data)));
    source.addEventListener("change", ({ data }) => {
      const change: StateChange = JSON.parse(data);
      if (this.#state !== undefined) this.#hear(applyChange(this.#state, change));
    });
    source.addEventListener("alive", () => {
      this.#heardMs = Date.now();
      this.#alive();
    });
    source.addEventListener("error", () => this.#broken());
    this.#alive();
  }

  #hear(state: StateDocument): void {
    this.#state = state;
    this.#heardMs = Date.now();
    this.#pauseMs = PAUSE_MS.first;
    this.#alive();
    this.#tell("live");
    this.#onState(state);
  }

  /** A connection that was cut without a word is noticed too. */
  #alive(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#broken(), SILENCE_MS);
  }

  #broken(): void {
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = undefined;
    this.#tell("broken");
    if (this.#retry !== undefined) return;
    const pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(2 * pauseMs, PAUSE_MS.longest);
    this.#retry = setTimeout(() => this.#open(), pauseMs);
    void this.#askWhy();
  }

  /** A stream that is refused says nothing; a request for it does. */
  async #askWhy(): Promise<void> {
    const stop = new AbortController();
    try {
      const response = await fetch("/events", { signal: stop.signal, cache: "no-store" });
      if (response.ok || this.#source !== undefined) return;
      const reason = (await response.text()).trim().slice(0, 300);
      if (this.#source === undefined) this.#tell("broken", reason);
    } catch {
      // Nobody is there, which is what the page says already.
    } finally {
      stop.abort();
    }
  }

  #tell(state: Link["state"], reason?: string): void {
    this.#onLink({ state, sinceMs: this.#heardMs, reason });
  }
}
