/**
 * A plot over rounds or steps, drawn with uPlot, with a legend that shows the values under the pointer.
 *
 * @module
 */
/// <reference lib="dom" />
import type Plot from "uplot";
import { html, reconcile, setAttribute, setText, show } from "./dom.ts";
import { count } from "./format.ts";
import { ceiling } from "./statistics.ts";

/** The library, which the page loads first. */
declare const uPlot: typeof Plot;

/** One curve. */
export interface Curve {
  readonly label: string;
  /** The custom property of the style sheet that holds its colour. */
  readonly color: string;
  readonly dash?: readonly number[];
  readonly fill?: boolean;
}

/** What a plot shows. */
export interface Curves {
  readonly curves: readonly Curve[];
  /** What the horizontal axis counts. */
  readonly x: readonly number[];
  /** Values of each curve; null where it has none. */
  readonly ys: readonly (readonly (number | null)[])[];
}

const HEIGHT = 220;

/** How a plot reads. */
export interface PlotWords {
  /** What the horizontal axis counts, in the singular: "round". */
  readonly x: string;
  /** A value with its unit. */
  readonly value: (value: number) => string;
  /** A sentence for those who do not see the plot. */
  readonly summary: (curves: Curves) => string;
}

/** One plot. */
export class LivePlot {
  readonly #box = html("div", { class: "plot", role: "img" });
  readonly #legend = html("ul", { class: "legend" });
  readonly #at = html("span", { class: "at" });
  readonly #words: PlotWords;
  /** How much is above the plot. */
  readonly #above = html("span", { class: "above" });
  #curves: Curves = { curves: [], x: [], ys: [] };
  #top = 1;
  #plot: Plot | undefined;
  #drawn = "";

  /** Puts it into a figure. */
  constructor(figure: HTMLElement, words: PlotWords) {
    this.#words = words;
    figure.append(
      this.#box,
      html("div", { class: "legend-line" }, this.#at, this.#legend, this.#above),
    );
    new ResizeObserver(() => {
      const width = this.#box.clientWidth;
      if (this.#plot !== undefined && width > 0) this.#plot.setSize({ width, height: HEIGHT });
    }).observe(this.#box);
    // The canvas knows nothing of the style sheet.
    for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) {
      matchMedia(query).addEventListener("change", () => {
        this.#drawn = "";
        this.draw(this.#curves);
      });
    }
  }

  /** Draws curves. */
  draw(curves: Curves): void {
    this.#curves = curves;
    this.#top = ceiling(curves.ys.flat().filter((value) => value !== null));
    const names = JSON.stringify(curves.curves);
    const data: Plot.AlignedData = [
      curves.x as number[],
      ...curves.ys as (number | null)[][],
    ];
    if (names === this.#drawn) this.#plot!.setData(data);
    else {
      this.#drawn = names;
      this.#plot?.destroy();
      this.#plot = new uPlot(this.#options(curves.curves), data, this.#box);
    }
    setAttribute(this.#box, "aria-label", this.#words.summary(curves));
    this.#tell();
  }

  #options(curves: readonly Curve[]): Plot.Options {
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: color("--muted"), font, grid: { stroke: color("--grid"), width: 1 } };
    const { value } = this.#words;
    return {
      width: Math.max(this.#box.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: false },
        // From zero, so that a small wobble does not look like a cliff.
        y: { range: () => [0, this.#top] },
      },
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 1e5, 1e6] },
        { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => value(tick)) },
      ],
      series: [
        {},
        ...curves.map((curve) => ({
          label: curve.label,
          stroke: color(curve.color),
          width: 2,
          points: { show: false },
          ...(curve.dash === undefined ? {} : { dash: [...curve.dash] }),
          ...(curve.fill === true ? { fill: color(`${curve.color}-fill`) } : {}),
        })),
      ],
      hooks: { setCursor: [() => this.#tell()] },
    };
  }

  /** The values under the pointer, or the last ones. */
  #tell(): void {
    const { curves, x, ys } = this.#curves;
    const above = ys.flat().filter((value) => value !== null && value > this.#top) as number[];
    const most = Math.max(...above);
    show(this.#above, above.length > 0);
    setText(
      this.#above,
      `${count(above.length, "value")} above the plot, up to ${this.#words.value(most)}`,
    );
    const at = this.#plot?.cursor.idx ?? x.length - 1;
    const place = x[at];
    show(this.#at, place !== undefined);
    if (place !== undefined) setText(this.#at, `${this.#words.x} ${place}`);
    reconcile(
      this.#legend,
      curves.map((curve, i) => ({ curve, i })),
      ({ curve }) => curve.label,
      ({ curve }) =>
        html(
          "li",
          {},
          html("span", { class: `key ${curve.color.slice(2)}` }),
          html("span", {}, curve.label),
          html("output"),
        ),
      (item, { i }) => {
        const value = ys[i]?.[at];
        const text = value === null || value === undefined ? "–" : this.#words.value(value);
        setText(item.lastElementChild!, text);
      },
    );
  }
}
