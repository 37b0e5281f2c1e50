/**
 * Metrics for Prometheus, read from a state when they are scraped.
 *
 * @module
 */
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { MetricsSource } from "./routes.ts";

/** Upper bounds of a round's time, in seconds: from small sums in memory to large models on slow links. */
const ROUND_SECONDS_BUCKETS = [
  0.001,
  0.0025,
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
  300,
];

/** A value with its labels. */
export type Labelled = readonly [labels: Record<string, string>, value: number];

/** The metrics of one process, most of which are read from its state. */
export class StateMetrics<Fields> implements MetricsSource {
  readonly #registry = new Registry();
  readonly #read: () => Fields;
  /** The state as the scrape under way sees it. */
  #fields: Fields;

  /** @param read Gives the state; called once a scrape. */
  constructor(read: () => Fields) {
    this.#read = read;
    this.#fields = read();
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  metrics(): Promise<string> {
    this.#fields = this.#read();
    return this.#registry.metrics();
  }

  /** Numbers that only grow, a name and help each. */
  counters(readings: readonly [string, string, (fields: Fields) => number][]): this {
    for (const [name, help, read] of readings) {
      const fields = () => this.#fields;
      new Counter({
        name,
        help,
        registers: [this.#registry],
        collect() {
          this.reset();
          this.inc(read(fields()));
        },
      });
    }
    return this;
  }

  /** Numbers that go up and down, a name and help each. */
  gauges(readings: readonly [string, string, (fields: Fields) => number][]): this {
    for (const [name, help, read] of readings) {
      this.labelled(name, help, [], (fields) => [[{}, read(fields)]]);
    }
    return this;
  }

  /** Numbers that go up and down, one for each set of labels that is there. */
  labelled(
    name: string,
    help: string,
    labelNames: readonly string[],
    read: (fields: Fields) => readonly Labelled[],
  ): this {
    const fields = () => this.#fields;
    new Gauge({
      name,
      help,
      labelNames,
      registers: [this.#registry],
      collect() {
        this.reset();
        // Without labels, prom-client shows 0 where nothing was set.
        if (labelNames.length === 0) this.remove();
        for (const [labels, value] of read(fields())) this.set(labels, value);
      },
    });
    return this;
  }

  /** Counts rounds by kind; returns what to call with each. */
  rounds(name: string, help: string): (kind: string) => void {
    const labelNames = ["kind"] as const;
    const counter = new Counter({ name, help, labelNames, registers: [this.#registry] });
    // From the start, so that a rate sees the first one.
    for (const kind of ["model", "control"]) counter.inc({ kind }, 0);
    return (kind) => counter.inc({ kind });
  }

  /** Times of rounds by kind; returns what to call with each one's milliseconds. */
  roundTimes(name: string, help: string): (kind: string, ms: number) => void {
    const histogram = new Histogram({
      name,
      help,
      labelNames: ["kind"] as const,
      buckets: ROUND_SECONDS_BUCKETS,
      registers: [this.#registry],
    });
    return (kind, ms) => histogram.observe({ kind }, ms / 1000);
  }
}

/** How many entries have each value of a label; nothing where there is no list. */
export function byLabel<Label extends string, Value extends string>(
  label: Label,
  values: readonly Value[],
  entries: readonly { readonly [Key in Label]: Value }[] | null,
): Labelled[] {
  if (entries === null) return [];
  return values.map((value) => [
    { [label]: value },
    entries.filter((entry) => entry[label] === value).length,
  ]);
}
