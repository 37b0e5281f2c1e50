/**
 * Passes, delta peers and what is kept on the disk.
 *
 * @module
 */
/// <reference lib="dom" />
import type {
  DeltaPeerView,
  DurabilityView,
  PassView,
  StateDocument,
} from "../../../observe/state.ts";
import { byId, html, reconcile, setAttribute, setText, show } from "./dom.ts";
import { bytes, clock, count, number } from "./format.ts";

/** Passes shown, the newest ones. */
const SHOWN_PASSES = 8;

const PASS_LEVELS = {
  collecting: "info",
  aggregating: "info",
  complete: "good",
  failed: "error",
} as const;

const PEER_STATES = {
  idle: ["not connected", "warning"],
  dialing: ["connecting", "info"],
  open: ["connected", "good"],
} as const;

/** A list entry: what it is, how it stands, and a sentence. */
function entry(): HTMLLIElement {
  return html(
    "li",
    {},
    html("strong"),
    html("span", { class: "tag" }),
    html("p"),
    html("p", { class: "reason" }),
  );
}

function fillEntry(
  item: HTMLElement,
  name: string,
  [word, level]: readonly [string, string],
  text: string,
  reason: string | null,
): void {
  const [title, tag, sentence, why] = [...item.children] as HTMLElement[];
  setText(title!, name);
  setText(tag!, word);
  setAttribute(tag!, "class", `tag ${level}`);
  setText(sentence!, text);
  setText(why!, reason ?? "");
  show(why!, reason !== null);
}

function showPasses(passes: readonly PassView[] | null): void {
  const shown = (passes ?? []).slice(-SHOWN_PASSES).reverse();
  show(byId("passes-empty"), shown.length === 0);
  reconcile(byId("passes-list"), shown, ({ key }) => key, entry, (item, pass) => {
    const until = pass.phase === "collecting" ? `, until ${clock(pass.deadlineAtMs)}` : "";
    fillEntry(
      item,
      pass.key,
      [pass.phase, PASS_LEVELS[pass.phase]],
      `${pass.received} of ${count(pass.expected, "peer")}; started ${
        clock(pass.startedAtMs)
      }${until}`,
      pass.reason,
    );
  });
}

function showDeltas(peers: readonly DeltaPeerView[] | null): void {
  const shown = peers ?? [];
  show(byId("deltas-empty"), shown.length === 0);
  reconcile(byId("deltas-list"), shown, ({ address }) => address, entry, (item, peer) => {
    const parts = [`${number(peer.sent)} sent`, `${number(peer.waiting)} waiting`];
    if (peer.dropped > 0) parts.push(`${number(peer.dropped)} dropped`);
    if (peer.replica) parts.push("a replica");
    fillEntry(item, peer.address, PEER_STATES[peer.state], parts.join(", "), peer.lastError);
  });
}

function showDurability(kept: DurabilityView | null): void {
  show(byId("kept-empty"), kept === null);
  show(byId("kept-list"), kept !== null);
  if (kept === null) return;
  const { step, resumedStep, checkpoint, error } = kept;
  const rows: readonly (readonly [string, string])[] = [
    ["Step", number(step)],
    ["Resumed from", resumedStep === null ? "the beginning" : `step ${number(resumedStep)}`],
    [
      "Last checkpoint",
      checkpoint === null
        ? "none yet"
        : `step ${number(checkpoint.step)}, ${bytes(checkpoint.bytes)}, ${clock(checkpoint.atMs)}`,
    ],
    ...(error === null ? [] : [["Trouble", error] as const]),
  ];
  reconcile(
    byId("kept-list"),
    rows,
    ([name]) => name,
    ([name]) => html("div", {}, html("dt", {}, name), html("dd")),
    (row, [, value]) => setText(row.lastElementChild!, value),
  );
}

/** Shows all three. */
export function showLists({ passes, deltas, durability }: StateDocument): void {
  showPasses(passes);
  showDeltas(deltas);
  showDurability(durability);
}
