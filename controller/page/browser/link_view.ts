/**
 * How the page is connected with the controller, in words.
 *
 * @module
 */
/// <reference lib="dom" />
import { byId, setAttribute, setText, show } from "./dom.ts";
import { clock } from "./format.ts";
import type { Link } from "./stream.ts";

/**
 * Shows it.
 *
 * @param over Whether the session was over when the page last heard of it.
 */
export function showLink({ state, sinceMs, reason }: Link, over: boolean): void {
  const { word, look, text } = wordsOf(state, sinceMs, reason, over);
  setText(byId("link-text"), word);
  setAttribute(byId("link"), "data-look", look);
  setText(byId("stale-text"), text);
  show(byId("stale"), text !== "");
  document.documentElement.classList.toggle("old", state === "broken");
}

function wordsOf(
  state: Link["state"],
  sinceMs: number | undefined,
  reason: string | undefined,
  over: boolean,
): { word: string; look: string; text: string } {
  if (state === "live") return { word: "live", look: "good", text: "" };
  if (state === "connecting") return { word: "connecting", look: "info", text: "" };
  const why = reason === undefined ? "" : ` The controller says: ${reason}.`;
  if (sinceMs === undefined) {
    return {
      word: "not connected",
      look: "error",
      text: `The controller could not be reached.${why} Trying again.`,
    };
  }
  const since = clock(sinceMs);
  if (over) {
    return {
      word: `ended at ${since}`,
      look: "info",
      text: `The session is over and its controller has ended. This is how it stood at ${since}.`,
    };
  }
  return {
    word: `disconnected since ${since}`,
    look: "error",
    text: `The controller has not been heard since ${since}.${why} What you see is from then. ` +
      "Trying again.",
  };
}
