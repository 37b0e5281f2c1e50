/**
 * Logging: configured once per process, lines on standard error for people or for machines.
 *
 * Use it as `getLogger(["tierfold", "relay"]).info("rank {rank} joined", { rank, peer })`: what a record
 * is about (rank, tensor, peer, round) goes into its properties, so that JSON lines carry them as fields.
 *
 * @module
 */

import {
  configureSync,
  disposeSync,
  getAnsiColorFormatter,
  getConfig,
  getJsonLinesFormatter,
  getTextFormatter,
  type LogLevel,
  type LogRecord,
  resetSync,
  sanitizeControlSequences,
  type TextFormatter,
} from "@logtape/logtape";

/** How to log. */
export interface LogOptions {
  readonly format: "human" | "json";
  /** The least level written. */
  readonly level: LogLevel;
}

/** Where and how lines are written; the defaults are for a program. */
export interface LogSurface {
  /** Takes whole lines, line end included. */
  readonly write?: (line: string) => void;
  /** Whether colours may be used. */
  readonly color?: boolean;
}

/**
 * Starts logging for this process.
 *
 * Lines are written at once, so that nothing is lost when the process ends.
 *
 * @returns What ends it again: dispose it before the process exits.
 * @throws {Error} when logging is on already.
 */
export function startLogging(options: LogOptions, surface: LogSurface = {}): Disposable {
  if (getConfig() !== null) throw new Error("logging is on already: dispose it before a new start");
  const write = surface.write ?? writeStderr;
  const color = surface.color ?? (!Deno.noColor && Deno.stderr.isTerminal());
  const format = options.format === "json" ? jsonFormatter() : humanFormatter(color);
  configureSync({
    sinks: { lines: (record: LogRecord) => write(format(record)) },
    loggers: [
      { category: "tierfold", sinks: ["lines"], lowestLevel: options.level },
      // logtape's own complaints, such as a sink that throws.
      { category: ["logtape", "meta"], sinks: ["lines"], lowestLevel: "warning" },
    ],
  });
  return {
    [Symbol.dispose]() {
      disposeSync();
      resetSync();
    },
  };
}

function jsonFormatter(): TextFormatter {
  const line = getJsonLinesFormatter({ message: "rendered", properties: "nest:properties" });
  return (record) =>
    line({
      ...record,
      // One part, so that the formatter does not quote the words in a sentence.
      message: [
        record.message.map((part, index) => index % 2 === 0 ? part : words(part)).join(""),
      ],
      properties: Object.fromEntries(
        Object.entries(record.properties).map(([key, value]) => [key, plain(value)]),
      ),
    });
}

/** Errors have no enumerable fields and bigints no JSON: say both as text. */
function plain(value: unknown): unknown {
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  return typeof value === "bigint" ? value.toString() : value;
}

function humanFormatter(color: boolean): TextFormatter {
  const make = color ? getAnsiColorFormatter : getTextFormatter;
  return make({
    timestamp: "time",
    timeZone: null,
    level: "full",
    category: (category) => category.filter((part) => part !== "tierfold").join("."),
    value: (value) => tame(words(value)),
    sanitize: TAME,
    format: ({ timestamp, level, category, message, record }) =>
      `${timestamp} ${level.padEnd(7)} ${category}: ${message}${details(record)}`,
  });
}

/** The properties that the message does not speak of. */
function details(record: LogRecord): string {
  const { rawMessage } = record;
  const said = typeof rawMessage === "string" ? rawMessage : "";
  return Object.entries(record.properties)
    .filter(([key]) => !said.includes(`{${key}}`))
    .map(([key, value]) => {
      const text = typeof value === "string" ? JSON.stringify(value) : inspect(value);
      return ` ${key}=${tame(text)}`;
    })
    .join("");
}

/** Peers choose names and reasons: on a terminal these may neither start lines nor move the cursor. */
const TAME = { sgr: "escape", newlines: "escape" } as const;

function tame(text: string): string {
  return sanitizeControlSequences(text, TAME);
}

/** A value inside a sentence. */
function words(value: unknown): string {
  return typeof value === "string" ? value : inspect(value);
}

function inspect(value: unknown): string {
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  return Deno.inspect(value, { colors: false, compact: true, breakLength: Infinity, depth: 3 });
}

const encoder = new TextEncoder();

function writeStderr(line: string): void {
  let rest = encoder.encode(line);
  try {
    while (rest.length > 0) rest = rest.subarray(Deno.stderr.writeSync(rest));
  } catch (error) {
    // Nobody reads the log any more: no reason to stop training.
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}
