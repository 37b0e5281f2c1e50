/**
 * Which rank hangs on which host, as the picture shows it.
 *
 * @module
 */
import type { HostView, RankView, StateDocument } from "../../../observe/state.ts";

/** A host with its ranks, those that are gone included; without a host: ranks that nobody claimed. */
export interface Branch {
  readonly host: HostView | undefined;
  /** By number. */
  readonly ranks: readonly RankView[];
}

/** The host that carries a rank, or did last. */
function hostOf(rank: RankView, hosts: readonly HostView[]): HostView | undefined {
  const carrier = hosts.find(({ ranks }) => ranks.includes(rank.rank));
  if (carrier !== undefined) return carrier;
  // Names are the relays' own and may be the same twice: the key is the host's lowest rank.
  const named = hosts.filter(({ name }) => name === rank.host);
  return named.findLast(({ key }) => key <= rank.rank) ?? named[0];
}

/** The branches, by the hosts' keys; ranks without a host come last. */
export function branches({ hosts, ranks }: StateDocument): Branch[] {
  const byKey = new Map<number, RankView[]>(hosts.map(({ key }) => [key, []]));
  const unclaimed: RankView[] = [];
  for (const rank of ranks) {
    const host = hostOf(rank, hosts);
    (host === undefined ? unclaimed : byKey.get(host.key)!).push(rank);
  }
  const all: Branch[] = hosts.map((host) => ({ host, ranks: byKey.get(host.key)! }));
  if (unclaimed.length > 0) all.push({ host: undefined, ranks: unclaimed });
  return all;
}

/** A rectangle, in pixels. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Where everything is drawn. */
export interface Layout {
  readonly height: number;
  readonly controller: Box;
  /** By the index of the branch. */
  readonly cards: readonly Box[];
  /** SVG paths from the controller to the cards. */
  readonly links: readonly string[];
  /** Centres of the branches' ranks, relative to the card. */
  readonly ranks: readonly (readonly { readonly x: number; readonly y: number }[])[];
  /** Radius of a rank. */
  readonly radius: number;
}

const ROOT = { width: 200, height: 52 };
const CARD = { least: 190, most: 300, gap: 16, head: 58, pad: 14 };
/** From the controller to the first row of cards, and between rows; a single column needs no room for links. */
const DROP = 40;
/** Room for the trunk at the left of several rows. */
const GUTTER = 20;

/**
 * Lays the tree out: one row below the controller where the hosts fit, else rows beside a trunk.
 *
 * @param counts Ranks of each branch.
 * @param width Of the picture, in pixels.
 */
export function layOut(counts: readonly number[], width: number): Layout {
  const most = Math.max(1, ...counts);
  const [radius, step] = most > 64 ? [8, 20] : most > 16 ? [11, 27] : [14, 36];
  const fitting = Math.max(1, Math.floor((width + CARD.gap) / (CARD.least + CARD.gap)));
  const oneRow = counts.length <= fitting;
  const left = oneRow ? 0 : GUTTER;
  const columns = oneRow
    ? Math.max(1, counts.length)
    : Math.max(1, Math.floor((width - left + CARD.gap) / (CARD.least + CARD.gap)));
  const room = (width - left - (columns - 1) * CARD.gap) / columns;
  const cardWidth = Math.floor(oneRow ? Math.min(CARD.most, room) : room);
  const perLine = Math.max(1, Math.floor((cardWidth - 2 * CARD.pad + step - 2 * radius) / step));
  const heightOf = (count: number) =>
    CARD.head + Math.max(1, Math.ceil(count / perLine)) * step + CARD.pad - (step - 2 * radius);
  const used = columns * cardWidth + (columns - 1) * CARD.gap;
  const start = oneRow ? (width - used) / 2 : left;
  const rootWidth = Math.min(ROOT.width, width);
  const controller = {
    x: oneRow ? (width - rootWidth) / 2 : 0,
    y: 1,
    width: rootWidth,
    height: ROOT.height,
  };
  const between = columns === 1 ? CARD.gap : DROP;
  const cards: Box[] = [];
  const links: string[] = [];
  let y = controller.y + ROOT.height + between;
  for (let row = 0; row * columns < counts.length; row++) {
    const inRow = counts.slice(row * columns, (row + 1) * columns);
    const height = Math.max(...inRow.map(heightOf));
    inRow.forEach((_, column) => {
      const x = start + column * (cardWidth + CARD.gap);
      cards.push({ x, y, width: cardWidth, height });
      const top = controller.y + ROOT.height;
      if (oneRow) links.push(over(controller.x + controller.width / 2, top, x + cardWidth / 2, y));
      else if (columns > 1) links.push(over(GUTTER / 2, top, x + cardWidth / 2, y));
      else links.push(beside(GUTTER / 2, top, x, y + CARD.head / 2));
    });
    y += height + between;
  }
  const ranks = counts.map((count) =>
    Array.from({ length: count }, (_, i) => ({
      x: CARD.pad + radius + (i % perLine) * step,
      y: CARD.head + radius + Math.floor(i / perLine) * step,
    }))
  );
  return { height: y - between + 2, controller, cards, links, ranks, radius };
}

/** Down, across and down, with round corners. */
function over(fromX: number, fromY: number, toX: number, toY: number): string {
  const across = toY - DROP / 2;
  const side = Math.sign(toX - fromX);
  const bend = Math.min(8, Math.abs(toX - fromX) / 2);
  if (bend < 1) return `M${fromX} ${fromY}V${toY}`;
  return `M${fromX} ${fromY}V${across - bend}q0 ${bend} ${side * bend} ${bend}` +
    `H${toX - side * bend}q${side * bend} 0 ${side * bend} ${bend}V${toY}`;
}

/** Down and across, with a round corner. */
function beside(fromX: number, fromY: number, toX: number, toY: number): string {
  const bend = Math.min(8, toX - fromX);
  return `M${fromX} ${fromY}V${toY - bend}q0 ${bend} ${bend} ${bend}H${toX}`;
}
