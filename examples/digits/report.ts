/**
 * What the processes of the digits example tell the one that started them: one JSON object a line.
 *
 * @module
 */

/** A rank has joined and knows its share of the work. */
export interface StartReport {
  readonly kind: "start";
  readonly rank: number;
  /** Digits in its shard. */
  readonly digits: number;
  /** How many of each label. */
  readonly labels: readonly number[];
  /** Steps it makes between two averagings. */
  readonly steps: number;
}

/** A rank has finished a round. */
export interface RoundReport {
  readonly kind: "round";
  readonly rank: number;
  /** From 1. */
  readonly round: number;
  /** Steps made in it. */
  readonly steps: number;
  /** Mean training loss of these steps, before averaging. */
  readonly loss: number;
  /** The whole round, training and averaging, in milliseconds. */
  readonly roundMs: number;
  /** Averaging alone, waiting for slower ranks included, in milliseconds. */
  readonly averageMs: number;
  /** Bytes sent to the relay. */
  readonly bytesUp: number;
}

/** A rank is done. */
export interface EndReport {
  readonly kind: "end";
  readonly rank: number;
  /** SHA-256 of all its weights' bytes, in hex. */
  readonly sha256: string;
  /** Share of held-out digits named rightly; only one rank measures it, the weights being equal. */
  readonly accuracy?: number;
}

/** A run without averaging has made some of its steps. */
export interface ProgressReport {
  readonly kind: "progress";
  readonly steps: number;
  readonly of: number;
}

/** A run without averaging is done. */
export interface BaselineReport {
  readonly kind: "baseline";
  /** The rank whose shard it had; all digits when left out. */
  readonly rank?: number;
  readonly digits: number;
  readonly steps: number;
  /** Share of held-out digits named rightly. */
  readonly accuracy: number;
}

/** Any line of a process of this example. */
export type Report = StartReport | RoundReport | EndReport | ProgressReport | BaselineReport;

/** Writes one line; when nobody reads any more, this throws and so ends the process. */
export function report(line: Report): void {
  const bytes = new TextEncoder().encode(JSON.stringify(line) + "\n");
  for (let from = 0; from < bytes.length;) from += Deno.stdout.writeSync(bytes.subarray(from));
}

/** Reads what {@link report} wrote. */
export function parseReport(line: string): Report {
  return JSON.parse(line) as Report;
}

/**
 * A whole number from the command line.
 *
 * @throws {RangeError} when it is none, or less than `least`.
 */
export function wholeNumber(text: string | undefined, name: string, least: number): number {
  const value = /^\d+$/.test(text ?? "") ? Number(text) : NaN;
  if (value >= least) return value;
  throw new RangeError(`${name}: expected a whole number from ${least} up, got "${text ?? ""}"`);
}
