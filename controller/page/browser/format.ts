/**
 * Numbers, sizes and times as people read them.
 *
 * @module
 */

/** A number with three significant digits, groups of thousands beyond. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(2);
  if (size >= 1000 || Number.isInteger(value)) {
    return Math.round(value).toLocaleString("en");
  }
  if (size > 0 && size < 0.001) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** Bytes, in powers of 1,000. */
export function bytes(value: number): string {
  let size = value;
  let unit = 0;
  while (size >= 999.5 && unit < SIZES.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${number(size)} ${SIZES[unit]}`;
}

/** A duration in milliseconds: 0.21 ms, 34 ms, 1.2 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms: number): string {
  if (ms < 1000) return `${number(Number(ms.toPrecision(3)))} ms`;
  if (ms < 60_000) return `${number(ms / 1000)} s`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 3600) return pair(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 2880) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  return pair(Math.floor(minutes / 1440), "d", Math.floor(minutes / 60) % 24, "h");
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** The time of day, local, of milliseconds since 1970. */
export function clock(atMs: number): string {
  const date = new Date(atMs);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** How much of something, with its unit in the right number. */
export function count(value: number, one: string, many: string = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** Numbers, ascending, as ranges: 0-3, 5. */
export function ranges(values: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < values.length;) {
    let end = i;
    while (values[end + 1] === values[end]! + 1) end++;
    if (end > i + 1) parts.push(`${values[i]}-${values[end]}`);
    else parts.push(...values.slice(i, end + 1).map(String));
    i = end + 1;
  }
  return parts.join(", ");
}

/** "rank 3" or "ranks 0-3, 5". */
export function ranksOf(values: readonly number[]): string {
  return `${values.length === 1 ? "rank" : "ranks"} ${ranges(values)}`;
}

/** A text cut to so many characters. */
export function cut(text: string, length: number): string {
  const characters = [...text];
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`;
}
