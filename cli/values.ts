/**
 * What the values of options look like as text, and what they become: zod schemas that take a flag's,
 * an environment variable's or a config file's value.
 *
 * A schema's messages complete the sentence `--flag: ...`; they say what was expected and what came.
 *
 * @module
 */

import { isIPv4, isIPv6 } from "node:net";
import { z } from "zod";

/** A place to connect to or to listen at. */
export interface HostPort {
  /** A name, an IPv4 address, or an IPv6 address without brackets. */
  readonly hostname: string;
  /** 0 only where a free port may be chosen. */
  readonly port: number;
}

/** Writes an address as the options take it: IPv6 in brackets. */
export function formatHostPort(address: HostPort): string {
  const { hostname, port } = address;
  return hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`;
}

/** What a text parser raises; its message is the expectation that was not met. */
class Unfit extends Error {}

/** What a value looks like in a config file, in the words of JSON Schema; see config_schema.ts. */
type JsonShape = Readonly<Record<string, unknown>>;

/**
 * A schema over text. Numbers from a config file count as their text.
 *
 * @param expected What a value looks like, for the message.
 * @param json The same for JSON Schema: takes at least what `parse` takes.
 * @param parse Gives the value, or undefined when the text is none; may throw with a better reason.
 */
function textSchema<T>(
  expected: string,
  json: JsonShape,
  parse: (text: string) => T | undefined,
): z.ZodType<T> {
  return z.unknown().transform((input, context): T => {
    const refuse = (reason: string) => {
      context.addIssue({ code: "custom", message: `expected ${reason}, got ${show(input)}` });
      return z.NEVER;
    };
    const text = typeof input === "number" ? String(input) : input;
    if (typeof text !== "string") return refuse(expected);
    try {
      return parse(text) ?? refuse(expected);
    } catch (error) {
      if (error instanceof Unfit) return refuse(`${expected} (${error.message})`);
      throw error;
    }
  }).meta(json);
}

/** A refused value, shortened: what an operator typed, not what they pasted. */
function show(input: unknown): string {
  const text = JSON.stringify(input) ?? "nothing";
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

const TEXT = { type: ["string", "number"], minLength: 1 };

/** Any text but the empty one. */
export function text(expected: string, maxBytes = 4096): z.ZodType<string> {
  return textSchema(`${expected} of 1 to ${maxBytes} bytes`, TEXT, (value) => {
    const bytes = new TextEncoder().encode(value).length;
    return bytes >= 1 && bytes <= maxBytes ? value : undefined;
  });
}

/** One of some words. */
export function choice<const T extends string>(words: readonly T[]): z.ZodType<T> {
  const json = { enum: [...words] };
  return textSchema(
    `one of ${words.join(", ")}`,
    json,
    (value) => words.find((word) => word === value),
  );
}

/** Yes or no: JSON's true and false, or 1, 0, true, false, yes, no as text. */
export function yesNo(): z.ZodType<boolean> {
  const words: Readonly<Record<string, boolean>> = {
    true: true,
    yes: true,
    1: true,
    false: false,
    no: false,
    0: false,
  };
  return z.preprocess(
    (input) => typeof input === "boolean" ? String(input) : input,
    textSchema(
      "true or false",
      { enum: [true, false, 0, 1, ...Object.keys(words)] },
      (value) => Object.hasOwn(words, value) ? words[value] : undefined,
    ),
  );
}

/** A whole number within bounds, both included. */
export function wholeNumber(min: number, max: number): z.ZodType<number> {
  const json = { type: ["integer", "string"], minimum: min, maximum: max, pattern: "^\\d{1,15}$" };
  return textSchema(`a whole number from ${min} to ${max}`, json, (value) => {
    if (!/^\d{1,15}$/.test(value)) return undefined;
    const number = Number(value);
    return number >= min && number <= max ? number : undefined;
  });
}

const DECIMAL = /^\d{1,15}(\.\d{1,15})?(e-?\d{1,2})?$/;

/** A number like 0.7 or 1e-3 within bounds. */
export function decimal(
  bounds: { min?: number; above?: number; max?: number; below?: number },
): z.ZodType<number> {
  const { min = -Infinity, above = -Infinity, max = Infinity, below = Infinity } = bounds;
  const words = [
    ...(bounds.min === undefined ? [] : [`at least ${min}`]),
    ...(bounds.above === undefined ? [] : [`above ${above}`]),
    ...(bounds.max === undefined ? [] : [`at most ${max}`]),
    ...(bounds.below === undefined ? [] : [`below ${below}`]),
  ];
  const json = {
    type: ["number", "string"],
    pattern: DECIMAL.source,
    ...(bounds.min === undefined ? {} : { minimum: min }),
    ...(bounds.above === undefined ? {} : { exclusiveMinimum: above }),
    ...(bounds.max === undefined ? {} : { maximum: max }),
    ...(bounds.below === undefined ? {} : { exclusiveMaximum: below }),
  };
  return textSchema(`a number like 0.7 or 1e-3, ${words.join(" and ")}`, json, (value) => {
    if (!DECIMAL.test(value)) return undefined;
    const number = Number(value);
    return number >= min && number > above && number <= max && number < below ? number : undefined;
  });
}

/** A whole number within bounds, or the word `auto`. */
export function wholeNumberOrAuto(min: number, max: number): z.ZodType<number | "auto"> {
  return z.unknown().transform((input, context): number | "auto" => {
    if (input === "auto") return "auto";
    const result = wholeNumber(min, max).safeParse(input);
    if (result.success) return result.data;
    context.addIssue({
      code: "custom",
      message: `expected auto or a whole number from ${min} to ${max}, got ${show(input)}`,
    });
    return z.NEVER;
  }).meta({
    type: ["integer", "string"],
    minimum: min,
    maximum: max,
    pattern: "^(auto|\\d{1,15})$",
  });
}

const NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?$/;

const HOST_PORT = {
  type: "string",
  pattern: "^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9][A-Za-z0-9._-]*):\\d{1,5}$",
};

/**
 * `HOST:PORT`: a name, an IPv4 address, or an IPv6 address in brackets.
 *
 * @param port0 Whether port 0 (a free one is chosen) is allowed.
 */
export function hostPort({ port0 = false }: { port0?: boolean } = {}): z.ZodType<HostPort> {
  return textSchema("HOST:PORT", HOST_PORT, (value) => {
    const parts = /^(?:\[([^\]]*)\]|([^:[\]]*)):([^:]*)$/.exec(value);
    if (parts === null) {
      if (isIPv6(value) || isIPv6(value.replace(/:\d+$/, ""))) {
        throw new Unfit(`an IPv6 address stands in brackets, as in [::1]:7070`);
      }
      if (/^[^:]+$/.test(value)) throw new Unfit(`the port is missing`);
      return undefined;
    }
    const [, bracketed, plain = "", digits = ""] = parts;
    if (!/^\d{1,5}$/.test(digits) || Number(digits) > 65_535) {
      throw new Unfit(`a port is a number up to 65535`);
    }
    const port = Number(digits);
    if (port === 0 && !port0) throw new Unfit(`port 0 is not one to connect to`);
    if (bracketed !== undefined) {
      if (!isIPv6(bracketed)) throw new Unfit(`brackets hold an IPv6 address`);
      return { hostname: bracketed, port };
    }
    if (plain === "") throw new Unfit(`the host is missing; all addresses are 0.0.0.0 or [::]`);
    // A name of digits and dots alone would be read as an address by some resolvers.
    const good = /^[\d.]+$/.test(plain) ? isIPv4(plain) : NAME.test(plain);
    if (!good) throw new Unfit(`the host is neither a name nor an address`);
    return { hostname: plain, port };
  });
}

const LIST = { type: "string" };

/** `HOST:PORT,HOST:PORT`: places to connect to, each once; empty for none. */
export function hostPortList(): z.ZodType<readonly HostPort[]> {
  const one = hostPort();
  return textSchema("a list of HOST:PORT with commas between them", LIST, (value) => {
    const parts = value.split(",").map((part) => part.trim()).filter((part) => part !== "");
    const places = new Map<string, HostPort>();
    for (const part of parts) {
      const result = one.safeParse(part);
      if (!result.success) throw new Unfit(result.error.issues[0]?.message ?? part);
      places.set(formatHostPort(result.data), result.data);
    }
    return [...places.values()];
  });
}

const RANKS = {
  type: ["string", "integer", "array"],
  pattern: "^\\s*\\d{1,9}(-\\d{1,9})?\\s*(,\\s*\\d{1,9}(-\\d{1,9})?\\s*)*$",
  minimum: 0,
  items: { type: "integer", minimum: 0 },
  minItems: 1,
};

/**
 * Rank ids: `0-3`, `0,1,5`, `0-3,8`; a config file may also hold a list of numbers. Ascending, each
 * once, all below `limit`.
 */
export function rankSet(limit: number): z.ZodType<readonly number[]> {
  const parse = (value: string): readonly number[] | undefined => {
    const ranks: number[] = [];
    for (const item of value.split(",")) {
      const bounds = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(item.trim());
      if (bounds === null) return undefined;
      const first = Number(bounds[1]);
      const last = bounds[2] === undefined ? first : Number(bounds[2]);
      if (last < first) throw new Unfit(`the range ${item.trim()} runs backwards`);
      if (last >= limit) throw new Unfit(`rank ${last} is above the highest one, ${limit - 1}`);
      const before = ranks.at(-1);
      if (before !== undefined && first <= before) {
        throw new Unfit(`ranks ascend and appear once, but ${first} follows ${before}`);
      }
      for (let rank = first; rank <= last; rank++) ranks.push(rank);
    }
    return ranks;
  };
  return z.preprocess(
    (input) => Array.isArray(input) && input.length > 0 ? input.join(",") : input,
    textSchema("rank ids like 0-3 or 0,1,5", RANKS, parse),
  );
}

/** Writes ranks as {@link rankSet} takes them, runs as ranges. */
export function formatRanks(ranks: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const rank of ranks) {
    const run = runs.at(-1);
    if (run !== undefined && rank === run[1] + 1) run[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs.map(([first, last]) => first === last ? `${first}` : `${first}-${last}`).join(",");
}

const BYTE_UNITS: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  kB: 1e3,
  MB: 1e6,
  GB: 1e9,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
};

/** A number of bytes: `1000000`, `64MiB`, `1.5GiB`. */
export function byteSize(min: number, max: number): z.ZodType<number> {
  const json = {
    type: ["string", "integer"],
    pattern: amountPattern(BYTE_UNITS),
    minimum: min,
    maximum: max,
  };
  return textSchema(`a size like 64MiB or 1000000 (bytes)`, json, (value) => {
    const bytes = quantity(value, BYTE_UNITS);
    if (bytes === undefined) return undefined;
    if (!Number.isSafeInteger(bytes)) throw new Unfit(`that is no whole number of bytes`);
    if (bytes < min || bytes > max) throw new Unfit(`between ${min} and ${max} bytes`);
    return bytes;
  });
}

const TIME_UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 60e3, h: 3_600e3 };

/** The longest time that a timer takes, in milliseconds. */
const MAX_MS = 2 ** 31 - 1;

/** A time above zero in milliseconds, whole: `500ms`, `30s`, `1.5m`, `2h`. The unit is needed. */
export function duration(least = 1): z.ZodType<number> {
  const json = { type: "string", pattern: amountPattern(TIME_UNITS) };
  return textSchema(`a time like 500ms, 30s or 5m`, json, (value) => {
    const ms = quantity(value, TIME_UNITS);
    if (ms === undefined) return undefined;
    if (!Number.isInteger(ms) || ms < least || ms > MAX_MS) {
      throw new Unfit(`whole milliseconds, between ${least}ms and 596h`);
    }
    return ms;
  });
}

/** Writes milliseconds as {@link duration} takes them, in the largest unit that fits. */
export function formatDuration(ms: number): string {
  return ms === 0 ? "0ms" : inLargestUnit(ms, TIME_UNITS);
}

/** Writes bytes as {@link byteSize} takes them, in the largest binary unit that fits. */
export function formatBytes(bytes: number): string {
  return inLargestUnit(bytes, { "": 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 });
}

/** Of `units`, ascending, the last that divides the amount. */
function inLargestUnit(amount: number, units: Readonly<Record<string, number>>): string {
  const fitting = Object.entries(units).findLast(([, size]) => amount > 0 && amount % size === 0);
  return fitting === undefined ? `${amount}` : `${amount / fitting[1]}${fitting[0]}`;
}

/** A number and one of the units, as a regular expression. */
function amountPattern(units: Readonly<Record<string, number>>): string {
  const words = Object.keys(units).filter((unit) => unit !== "").join("|");
  return `^\\d{1,15}(\\.\\d{1,6})? ?(${words})${"" in units ? "?" : ""}$`;
}

function quantity(value: string, units: Readonly<Record<string, number>>): number | undefined {
  const parts = /^(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)$/.exec(value);
  const unit = parts?.[2] ?? "";
  if (parts === null || !Object.hasOwn(units, unit)) return undefined;
  // Rounding undoes the last bit of a product such as 1.001s; anything further off is refused.
  const product = Number(parts[1]) * (units[unit] ?? NaN);
  return Math.abs(product - Math.round(product)) < 1e-6 ? Math.round(product) : product;
}
