/**
 * Sizes as people write them: 4KB, 1MiB.
 *
 * @module
 */

const UNITS: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  KB: 1000,
  KiB: 1024,
  MB: 1e6,
  MiB: 1024 ** 2,
  GiB: 1024 ** 3,
};

/**
 * Bytes of a size such as `4000`, `4KB` (1,000 f32), `64KiB` or `256 MiB`.
 *
 * @throws {RangeError} When the text is no size or its bytes are no positive multiple of 4.
 */
export function parseSize(text: string): number {
  const match = /^(\d+)\s*([A-Za-z]*)$/.exec(text.trim());
  const unit = match === null ? undefined : UNITS[match[2] ?? ""];
  const bytes = match === null || unit === undefined ? NaN : Number(match[1]) * unit;
  if (!Number.isSafeInteger(bytes) || bytes <= 0 || bytes % 4 !== 0) {
    throw new RangeError(
      `reading a size: "${text}" is not a positive multiple of 4 bytes such as 4KB, 64KiB or 16MiB`,
    );
  }
  return bytes;
}

/** A size in the unit that divides it: `4 KB`, `64 KiB`, `16 MiB`. */
export function formatSize(bytes: number): string {
  for (const unit of ["GiB", "MiB", "KiB", "KB"]) {
    const scale = UNITS[unit] ?? 1;
    if (bytes >= scale && bytes % scale === 0) return `${bytes / scale} ${unit}`;
  }
  return `${bytes} B`;
}

/** Milliseconds with three significant digits, whole above 100, and their unit. */
export function formatMs(ms: number): string {
  return `${ms >= 100 ? Math.round(ms).toLocaleString("en-US") : ms.toPrecision(3)} ms`;
}
