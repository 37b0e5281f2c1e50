/**
 * Line plots as self-contained SVG, readable on light and on dark pages.
 *
 * @module
 */

/** One line of a plot. */
export interface Series {
  readonly name: string;
  /** Pairs of x and y in the units of the axes, in any order. */
  readonly points: readonly (readonly [number, number])[];
}

/** What {@link linePlot} draws. */
export interface LinePlot {
  readonly title: string;
  readonly xLabel: string;
  readonly yLabel: string;
  /** Logarithmic x axis, with ticks at the points' own x values; they must be positive. */
  readonly xLog: boolean;
  /** Logarithmic y axis; values must be positive. */
  readonly yLog?: boolean;
  readonly series: readonly Series[];
  /** How a tick of the x axis is written; as a plain number where absent. */
  readonly xTick?: (x: number) => string;
}

const WIDTH = 760;
const HEIGHT = 440;
const LEFT = 66;
const RIGHT = 150;
const TOP = 46;
const BOTTOM = 60;
/** The least distance between two names at the right edge. */
const NAME_HEIGHT = 15;
const MOST_X_TICKS = 9;

/** Colours that stay apart on white and on near-black, also for colour-blind readers. */
const COLOURS = ["#0a84d6", "#e07a00", "#1a9a6c", "#c2529b", "#8a63d2", "#b8860b", "#d9473f"];

const escape = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A number in at most four significant digits, without trailing zeros. */
const short = (value: number) => `${Number(value.toPrecision(4))}`;

/** Round steps (1, 2, 5 times a power of ten) from 0 to at least `largest`. */
function linearTicks(largest: number): number[] {
  const rough = largest / 6 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) ?? 10 * power;
  return Array.from({ length: Math.ceil(largest / step - 1e-9) + 1 }, (_, i) => i * step);
}

/** Powers of ten that enclose both ends. */
function logTicks(smallest: number, largest: number): number[] {
  const first = Math.floor(Math.log10(smallest));
  const last = Math.max(first + 1, Math.ceil(Math.log10(largest)));
  return Array.from({ length: last - first + 1 }, (_, i) => 10 ** (first + i));
}

/** Every value, or evenly spaced ones where there are too many for the axis. */
function thin(values: readonly number[]): number[] {
  const every = Math.ceil(values.length / MOST_X_TICKS);
  return values.filter((_, i) => i % every === 0);
}

/** Moves positions apart until neighbours are NAME_HEIGHT away from each other, keeping their order. */
function spread(positions: readonly number[]): number[] {
  const order = positions.map((y, i) => ({ y, i })).sort((a, b) => a.y - b.y);
  for (let k = 1; k < order.length; k++) {
    order[k]!.y = Math.max(order[k]!.y, order[k - 1]!.y + NAME_HEIGHT);
  }
  const over = (order.at(-1)?.y ?? 0) - (HEIGHT - BOTTOM);
  const result: number[] = [];
  for (const { y, i } of order) result[i] = over > 0 ? y - over : y;
  return result;
}

/**
 * An SVG document (760 x 440) with one line a series, its name written at the line's right end. Points
 * that are not finite are left out.
 */
export function linePlot(plot: LinePlot): string {
  const series = plot.series.map(({ name, points }) => ({
    name,
    points: points.filter((point) => point.every(Number.isFinite)).sort((a, b) => a[0] - b[0]),
  })).filter(({ points }) => points.length > 0);
  const all = series.flatMap(({ points }) => points);
  const xs = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
  const ys = all.map(([, y]) => y);
  const smallest = Math.min(...ys);
  const largest = Math.max(...ys);

  const yTicks = plot.yLog ? logTicks(smallest, largest) : linearTicks(Math.max(largest, 0));
  const xTicks = plot.xLog ? thin(xs) : linearTicks(xs.at(-1) ?? 1);
  const toX = plot.xLog ? Math.log : (x: number) => x;
  const toY = plot.yLog ? Math.log : (y: number) => y;
  const [x0, x1] = plot.xLog
    ? [toX(xs[0] ?? 1), toX(xs.at(-1) ?? 1)]
    : [0, Math.max(xTicks.at(-1)!, 1e-300)];
  const [y0, y1] = [toY(yTicks[0]!), toY(yTicks.at(-1)!)];
  const px = (x: number) => LEFT + ((toX(x) - x0) / (x1 - x0 || 1)) * (WIDTH - LEFT - RIGHT);
  const py = (y: number) =>
    HEIGHT - BOTTOM - ((toY(y) - y0) / (y1 - y0 || 1)) * (HEIGHT - TOP - BOTTOM);
  const at = (value: number) => value.toFixed(1);

  const parts: string[] = [];
  for (const y of yTicks) {
    parts.push(
      `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${at(py(y))}" y2="${at(py(y))}"/>`,
      `<text class="tick" x="${LEFT - 8}" y="${at(py(y) + 4)}" text-anchor="end">${
        short(y)
      }</text>`,
    );
  }
  for (const x of xTicks) {
    const text = escape(plot.xTick?.(x) ?? short(x));
    parts.push(
      `<line class="axis" x1="${at(px(x))}" x2="${at(px(x))}" y1="${HEIGHT - BOTTOM}" y2="${
        HEIGHT - BOTTOM + 5
      }"/>`,
      `<text class="tick" x="${at(px(x))}" y="${
        HEIGHT - BOTTOM + 19
      }" text-anchor="middle">${text}</text>`,
    );
  }
  parts.push(
    `<line class="axis" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${HEIGHT - BOTTOM}" y2="${
      HEIGHT - BOTTOM
    }"/>`,
  );
  const names = spread(series.map(({ points }) => py(points.at(-1)![1])));
  series.forEach(({ name, points }, i) => {
    const colour = COLOURS[i % COLOURS.length]!;
    const line = points.map(([x, y]) => `${at(px(x))},${at(py(y))}`).join(" ");
    parts.push(`<polyline points="${line}" fill="none" stroke="${colour}" stroke-width="2"/>`);
    for (const [x, y] of points) {
      parts.push(`<circle cx="${at(px(x))}" cy="${at(py(y))}" r="3" fill="${colour}"/>`);
    }
    parts.push(
      `<text class="name" x="${at(px(points.at(-1)![0]) + 9)}" y="${
        at(names[i]! + 4)
      }" fill="${colour}">${escape(name)}</text>`,
    );
  });

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-label="${
    escape(plot.title).replaceAll('"', "&quot;")
  }">
<style>
  text { font: 12px system-ui, sans-serif; }
  .page { fill: #ffffff; }
  .title { font-size: 15px; font-weight: 600; fill: #1f2328; }
  .label, .tick { fill: #59636e; }
  .name { font-weight: 600; }
  .grid { stroke: #d8dee4; }
  .axis { stroke: #8c959f; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; }
    .title { fill: #f0f6fc; }
    .label, .tick { fill: #9198a1; }
    .grid { stroke: #2a313a; }
    .axis { stroke: #6e7681; }
  }
</style>
<rect class="page" width="${WIDTH}" height="${HEIGHT}"/>
<text class="title" x="${LEFT}" y="26">${escape(plot.title)}</text>
${parts.join("\n")}
<text class="label" x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 16}" text-anchor="middle">${
    escape(plot.xLabel)
  }</text>
<text class="label" transform="translate(18 ${
    (TOP + HEIGHT - BOTTOM) / 2
  }) rotate(-90)" text-anchor="middle">${escape(plot.yLabel)}</text>
</svg>
`;
}
