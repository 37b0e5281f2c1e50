/**
 * What happened, newest first; troubles are announced as they come.
 *
 * @module
 */
/// <reference lib="dom" />
import type { EventView, StateDocument } from "../../../observe/state.ts";
import { byId, html, reconcile, setText, show } from "./dom.ts";
import { clock, count } from "./format.ts";

/** A burst of troubles is told as their number. */
const MAX_TOLD = 2;

const LEVELS = { info: "info", warning: "warning", error: "error" } as const;

function item(event: EventView): HTMLElement {
  const at = new Date(event.atMs).toISOString();
  return html(
    "li",
    { class: LEVELS[event.level] },
    html("time", { datetime: at, title: at }, clock(event.atMs)),
    html("span", { class: `tag ${LEVELS[event.level]}` }, event.kind.replaceAll("_", " ")),
    html("span", { class: "text" }, event.text),
  );
}

/** The list of events. */
export class Events {
  readonly #onlyTroubles = byId<HTMLInputElement>("only-troubles");
  #state: StateDocument | undefined;
  #session = "";
  #told = -1;

  constructor() {
    this.#onlyTroubles.addEventListener("change", () => {
      if (this.#state !== undefined) this.draw(this.#state);
    });
  }

  /** Shows a state's events. */
  draw(state: StateDocument): void {
    this.#state = state;
    const troubles = state.events.filter(({ level }) => level !== "info");
    const shown = this.#onlyTroubles.checked ? troubles : state.events;
    show(byId("events-empty"), shown.length === 0);
    reconcile(
      byId("events-list"),
      [...shown].reverse(),
      ({ id }) => `${state.session} ${id}`,
      item,
      () => {},
    );
    this.#announce(state, troubles);
  }

  #announce({ session, events }: StateDocument, troubles: readonly EventView[]): void {
    const last = events.at(-1)?.id ?? -1;
    if (session === this.#session && last > this.#told) {
      const fresh = troubles.filter(({ id }) => id > this.#told);
      const text = fresh.length > MAX_TOLD
        ? `${count(fresh.length, "new trouble")} in the list of events`
        : fresh.map((event) => event.text).join(". ");
      if (fresh.length > 0) setText(byId("announcer"), text);
    }
    this.#session = session;
    this.#told = last;
  }
}
