/**
 * What an operator may do from the page, once the token is there. It is kept in this object only.
 *
 * @module
 */
/// <reference lib="dom" />
import type { StateDocument } from "../../../observe/state.ts";
import { byId, setText, show } from "./dom.ts";
import type { Choice } from "./topology.ts";

/** The operator's part of the page. */
export class Operator {
  #token: string | undefined;
  /** Whether the controller takes a token at all; unknown at first. */
  #enabled: boolean | undefined;
  #session = "";
  #rank: number | undefined;

  constructor() {
    byId("operator-form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#unlock();
    });
    byId("operator-lock").addEventListener("click", () => {
      this.#token = undefined;
      this.#say("Locked.");
      this.#show();
      byId("operator-token").focus();
    });
    byId("end-session").addEventListener("click", () => {
      void this.#act(
        "/operator/end",
        "End the session?",
        "Every rank is told that the session is over. What can be kept is kept.",
        "End it",
        "The session is ending.",
      );
    });
    byId("declare-dead").addEventListener("click", () => {
      const rank = this.#rank;
      if (rank === undefined) return;
      void this.#act(
        `/operator/ranks/${rank}/declare-dead`,
        `Declare rank ${rank} dead?`,
        "Its relay stops waiting for it and closes its connection. The round goes on without it.",
        `Declare rank ${rank} dead`,
        `Rank ${rank} was declared dead.`,
      );
    });
  }

  /** Offers what can be done to what is chosen. */
  offer(choice: Choice, state: StateDocument): void {
    const [kind, number] = choice.split(" ");
    const rank = kind === "rank" ? state.ranks[Number(number)] : undefined;
    this.#rank = rank?.phase === "live" ? rank.rank : undefined;
    if (state.session !== this.#session) {
      // Another controller may be there now, with another token.
      this.#session = state.session;
      this.#token = undefined;
      void this.#ask();
    }
    this.#show();
  }

  async #ask(): Promise<void> {
    try {
      const response = await fetch("/operator");
      this.#enabled = (await response.json()).enabled === true;
    } catch {
      this.#enabled = undefined;
    }
    this.#show();
  }

  #show(): void {
    const unlocked = this.#token !== undefined;
    show(byId("operator-off"), this.#enabled === false);
    show(byId("operator-form"), this.#enabled === true && !unlocked);
    show(byId("operator-actions"), unlocked);
    show(byId("declare-dead"), unlocked && this.#rank !== undefined);
  }

  #say(text: string): void {
    setText(byId("operator-said"), text);
  }

  async #unlock(): Promise<void> {
    const input = byId<HTMLInputElement>("operator-token");
    const token = input.value.trim();
    input.value = "";
    const refused = await this.#post("/operator/check", token);
    if (refused === undefined) this.#token = token;
    this.#say(refused ?? "");
    this.#show();
    (refused === undefined ? byId("end-session") : input).focus();
  }

  async #act(
    path: string,
    title: string,
    text: string,
    button: string,
    done: string,
  ): Promise<void> {
    if (this.#token === undefined || !await confirmed(title, text, button)) return;
    const refused = await this.#post(path, this.#token);
    this.#say(refused ?? done);
  }

  /** Asks for something; gives why it was refused, if it was. */
  async #post(path: string, token: string): Promise<string | undefined> {
    // Others cannot stand in a header.
    if (!/^[A-Za-z0-9._~+/=-]+$/.test(token)) {
      return "That is no token: it has letters, digits and the characters . _ ~ + / = - only.";
    }
    try {
      const authorization = `Bearer ${token}`;
      const response = await fetch(path, { method: "POST", headers: { authorization } });
      if (response.ok) return undefined;
      const { error } = await response.json();
      return `Refused: ${error.message}.`;
    } catch {
      return "The controller could not be reached.";
    }
  }
}

function confirmed(title: string, text: string, button: string): Promise<boolean> {
  const dialog = byId<HTMLDialogElement>("confirm");
  setText(byId("confirm-title"), title);
  setText(byId("confirm-text"), text);
  setText(byId("confirm-yes"), button);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
