/**
 * Keeps measured ladders in a file, one for each adapter and version, so that only the first start on a
 * machine measures.
 *
 * @module
 */
import { z } from "zod";
import type { Rung } from "./ladder.ts";

/** Raised whenever what is measured, or how, changes. */
const FORMAT = 1;
/** Machines that share a file, as on a network drive; the oldest entries go first. */
const MOST_ENTRIES = 32;
/** No file that this program wrote is larger. */
const MOST_BYTES = 1 << 20;

const NAME = z.enum(["plain", "simd", "ort-wasm", "ort-webgpu"]);
const RUNG = z.object({
  bytes: z.number().int().positive(),
  rates: z.partialRecord(NAME, z.number().positive()),
  pick: NAME,
});
const FILE = z.object({
  format: z.literal(FORMAT),
  ladders: z.array(z.object({ key: z.string(), rungs: z.array(RUNG).min(1) })),
});

/** What a ladder holds for: this Deno, this processor count, this adapter. */
export function ladderKey(adapter: string | undefined): string {
  return [
    `deno ${Deno.version.deno}`,
    Deno.build.target,
    `${navigator.hardwareConcurrency} processors`,
    adapter ?? "no adapter",
  ].join(", ");
}

async function read(file: string): Promise<z.infer<typeof FILE>["ladders"]> {
  const { size } = await Deno.stat(file);
  if (size > MOST_BYTES) {
    throw new RangeError(`${file} has ${size} bytes, expected at most ${MOST_BYTES}`);
  }
  return FILE.parse(JSON.parse(await Deno.readTextFile(file))).ladders;
}

/**
 * The ladder stored under `key`, or undefined.
 *
 * @throws {Error} when the file is there but cannot be used.
 */
export async function readLadder(file: string, key: string): Promise<Rung[] | undefined> {
  try {
    return (await read(file)).find((entry) => entry.key === key)?.rungs as Rung[] | undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/**
 * Stores a ladder under `key` beside those of other keys; an unusable file is replaced. Readers see the
 * old file or the new one, never a part.
 *
 * @throws {Error} when the file cannot be written.
 */
export async function writeLadder(
  file: string,
  key: string,
  rungs: readonly Rung[],
): Promise<void> {
  const others = await read(file).catch(() => []);
  const ladders = [...others.filter((entry) => entry.key !== key), { key, rungs }];
  const text = JSON.stringify({ format: FORMAT, ladders: ladders.slice(-MOST_ENTRIES) }, null, 1);
  const fresh = `${file}.${crypto.randomUUID()}`;
  try {
    await Deno.writeTextFile(fresh, text + "\n");
    await Deno.rename(fresh, file);
  } catch (error) {
    await Deno.remove(fresh).catch(() => {});
    throw error;
  }
}
