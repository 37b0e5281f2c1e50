/**
 * The picture of the tree: the controller, its hosts, their ranks. Every part can be focused and chosen;
 * the arrow keys go from one to the next.
 *
 * @module
 */
/// <reference lib="dom" />
import type { RankPhase, StateDocument } from "../../../observe/state.ts";
import { html, reconcile, setAttribute, setText, svg } from "./dom.ts";
import { cut, ranksOf } from "./format.ts";
import { type Box, type Branch, branches, layOut } from "./tree.ts";

/** What is chosen in the picture: "controller", "host 4", "rank 7". */
export type Choice = string;

/** A phase in words. */
export const PHASES: Readonly<Record<RankPhase, string>> = {
  expected: "not here yet",
  live: "live",
  left: "has left",
  lost: "lost",
};

/** Room for the lines around what has the focus, in pixels. */
const MARGIN = 3;

/** How wide a character of a card's texts is at most, on average, in pixels. */
const CHARACTER = { name: 8.2, small: 6.7 };

/** A host's state in a few words. */
export function hostState({ host, ranks }: Branch, state: StateDocument): string {
  if (host === undefined) return "no relay yet";
  if (!host.connected) return ranks.every(({ phase }) => phase === "left") ? "done" : "gone";
  const { startedAtMs, awaited } = state.gathering;
  const slow = startedAtMs !== null && state.nowMs - startedAtMs > 1_000;
  if (slow && awaited.includes(host.key)) return "waited for";
  return "connected";
}

/** One part of the picture. */
interface Part {
  readonly choice: Choice;
  readonly label: string;
  readonly box: Box;
  readonly kind: "controller" | "host" | "rank";
  readonly look: string;
  readonly texts: readonly string[];
}

/** The picture. */
export class Topology {
  readonly #figure: HTMLElement;
  readonly #svg: SVGSVGElement;
  readonly #links = svg("g", { class: "links", "aria-hidden": "true" });
  readonly #parts = svg("g", { class: "parts" });
  readonly #onChoice: () => void;
  #state: StateDocument | undefined;
  #order: readonly Choice[] = [];
  #width = 0;
  /** What is chosen. */
  choice: Choice = "controller";

  /**
   * @param figure Where the picture goes.
   * @param onChoice Told when something else is chosen.
   */
  constructor(figure: HTMLElement, onChoice: () => void) {
    this.#figure = figure;
    this.#onChoice = onChoice;
    this.#svg = svg("svg", { role: "group", "aria-label": "Controller, hosts and ranks" });
    this.#svg.append(this.#links, this.#parts);
    const help = "Arrow keys go through the parts.";
    figure.append(this.#svg, html("p", { class: "unseen" }, help));
    // Listening to the picture itself would make it a stop of the Tab key.
    figure.addEventListener("keydown", (event) => this.#onKey(event));
    for (const type of ["click", "focusin"]) {
      figure.addEventListener(type, (event) => {
        const part = (event.target as Element).closest<SVGElement>("[data-key]");
        if (part !== null) this.choose(part.dataset["key"]!);
      });
    }
    new ResizeObserver(() => {
      if (this.#state !== undefined && figure.clientWidth !== this.#width) this.draw(this.#state);
    }).observe(figure);
  }

  /** Chooses a part. */
  choose(choice: Choice): void {
    if (choice === this.choice) return;
    this.choice = choice;
    if (this.#state !== undefined) this.draw(this.#state);
    this.#onChoice();
  }

  /** Draws a state. */
  draw(state: StateDocument): void {
    this.#state = state;
    this.#width = this.#figure.clientWidth;
    const tree = branches(state);
    const layout = layOut(tree.map(({ ranks }) => ranks.length), this.#width - 2 * MARGIN);
    const height = layout.height + 2 * MARGIN;
    setAttribute(this.#svg, "viewBox", `${-MARGIN} ${-MARGIN} ${this.#width} ${height}`);
    setAttribute(this.#svg, "height", height);
    const parts: Part[] = [{
      choice: "controller",
      kind: "controller",
      label: `Controller ${state.listen ?? ""}, ${state.phase}`,
      box: layout.controller,
      look: state.phase,
      texts: ["Controller", cut(state.listen ?? "not listening yet", 27)],
    }];
    tree.forEach((branch, i) => {
      const box = layout.cards[i]!;
      parts.push(hostPart(branch, state, box));
      branch.ranks.forEach(({ rank, phase }, j) => {
        const { x, y } = layout.ranks[i]![j]!;
        const { radius } = layout;
        const where = branch.host === undefined ? "no host" : `host ${branch.host.name}`;
        parts.push({
          choice: `rank ${rank}`,
          kind: "rank",
          label: `Rank ${rank}, ${PHASES[phase]}, ${where}`,
          box: {
            x: box.x + x - radius,
            y: box.y + y - radius,
            width: 2 * radius,
            height: 2 * radius,
          },
          look: phase,
          texts: [String(rank)],
        });
      });
    });
    this.#order = parts.map(({ choice }) => choice);
    if (!this.#order.includes(this.choice)) this.choice = "controller";
    reconcile(
      this.#links,
      // Those of the living lie above the others.
      layout.links.map((path, i) => ({ path, branch: tree[i]! }))
        .sort((a, b) => liveliness(a.branch) - liveliness(b.branch)),
      ({ branch }) => String(branch.host?.key ?? "none"),
      () => svg("path", { fill: "none" }),
      (path, item) => {
        setAttribute(path, "d", item.path);
        setAttribute(path, "class", `link ${hostLook(item.branch, state)}`);
      },
    );
    reconcile(this.#parts, parts, ({ choice }) => choice, createPart, (element, part) => {
      this.#updatePart(element, part);
    });
  }

  #updatePart(element: SVGGElement, part: Part): void {
    const { box, kind, look, label, choice, texts } = part;
    const chosen = choice === this.choice;
    setAttribute(element, "class", `part ${kind} ${look}`);
    // A title may say more than what is seen, which is cut; a label must not.
    if (kind === "rank") setAttribute(element, "aria-label", label);
    else setText(element.querySelector("title")!, label);
    setAttribute(element, "aria-pressed", String(chosen));
    setAttribute(element, "tabindex", chosen ? 0 : -1);
    setAttribute(element, "transform", `translate(${box.x} ${box.y})`);
    const shape = element.firstElementChild!;
    setAttribute(shape, "width", box.width);
    setAttribute(shape, "height", box.height);
    // The shape tells the state as well as the colour does.
    setAttribute(shape, "rx", kind !== "rank" ? 8 : look === "lost" ? 3 : box.width / 2);
    const lines = element.querySelectorAll("text");
    texts.forEach((text, i) => setText(lines[i]!, text));
    if (kind !== "rank") return;
    const text = lines[0]!;
    setAttribute(text, "x", box.width / 2);
    setAttribute(text, "y", box.height / 2);
    setAttribute(text, "font-size", Math.min(13, box.width / 2));
  }

  #onKey(event: KeyboardEvent): void {
    const at = this.#order.indexOf(this.choice);
    const to = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: this.#order.length - 1,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const choice = this.#order[Math.max(0, Math.min(this.#order.length - 1, to))]!;
    this.choose(choice);
    const parts = [...this.#parts.children] as SVGElement[];
    parts.find((part) => part.dataset["key"] === choice)?.focus();
  }
}

function liveliness({ host }: Branch): number {
  return host?.connected === true ? 1 : 0;
}

function hostLook(branch: Branch, state: StateDocument): string {
  return hostState(branch, state).replaceAll(" ", "-");
}

function hostPart(branch: Branch, state: StateDocument, box: Box): Part {
  const { host, ranks } = branch;
  const words = hostState(branch, state);
  const name = host?.name ?? "Unclaimed";
  const room = (pixels: number) => Math.floor((box.width - 28) / pixels);
  const carried = host === undefined ? ranksOf(ranks.map(({ rank }) => rank)) : words;
  return {
    choice: host === undefined ? "unclaimed" : `host ${host.key}`,
    kind: "host",
    label: `${host === undefined ? "" : "Host "}${name}, ${carried}`,
    box,
    look: hostLook(branch, state),
    texts: [cut(name, room(CHARACTER.name)), cut(carried, room(CHARACTER.small))],
  };
}

function createPart({ kind }: Part): SVGGElement {
  const group = svg("g", { role: "button" }, svg("rect", { class: "shape" }));
  if (kind === "rank") {
    group.append(svg("text", { class: "number", "text-anchor": "middle" }));
    return group;
  }
  const x = 14;
  group.append(
    svg("title"),
    svg("text", { class: "name", x, y: 23 }),
    svg("text", { class: "small", x, y: 42 }),
  );
  return group;
}
