/**
 * The manifest: the names of a training's tensors, which no frame carries.
 *
 * JSON: a list of names in the order in which the ranks give their tensors to a Model round,
 *
 *     ["embed.weight", "head.weight", "head.bias"]
 *
 * or, where they average several lists in rounds of their own, a list of such lists in the order of their
 * first rounds.
 *
 * @module
 */
import { MAX_TENSORS } from "./limits.ts";

/** Most bytes of a name. */
const MAX_NAME_BYTES = 1024;
/** Names that start so are Tierfold's own. */
const RESERVED = /^(tierfold\.|__)/;

/** Names by list and place. */
export type Manifest = readonly (readonly string[])[];

/**
 * Reads a manifest.
 *
 * @throws {RangeError} saying what was expected and what is there.
 */
export function parseManifest(text: string): Manifest {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new RangeError("it is not JSON");
  }
  if (!Array.isArray(value) || value.length === 0) {
    throw new RangeError("expected a list of names, or of lists of names, that is not empty");
  }
  const lists: unknown[] = value.every(Array.isArray) ? value : [value];
  const seen = new Set<string>();
  for (const [list, names] of (lists as unknown[][]).entries()) {
    if (names.length > MAX_TENSORS) {
      throw new RangeError(`list ${list} has ${names.length} names, at most ${MAX_TENSORS}`);
    }
    for (const [i, name] of names.entries()) checkName(name, `name ${i} of list ${list}`, seen);
  }
  return lists as string[][];
}

/** The name of one tensor among `count`, where a list of so many names is there. */
export function nameIn(
  manifest: Manifest | undefined,
  tensor: number,
  count: number,
): string | undefined {
  return manifest?.find((names) => names.length === count)?.[tensor];
}

function checkName(name: unknown, where: string, seen: Set<string>): void {
  const fail = (why: string) => new RangeError(`${where} ${why}`);
  if (typeof name !== "string") throw fail(`is ${JSON.stringify(name)}, expected a text`);
  const bytes = new TextEncoder().encode(name).length;
  if (bytes === 0 || bytes > MAX_NAME_BYTES || !name.isWellFormed()) {
    throw fail(`has ${bytes} bytes, expected 1 to ${MAX_NAME_BYTES} of well-formed text`);
  }
  if (RESERVED.test(name)) throw fail(`is ${JSON.stringify(name)}, and such names are taken`);
  if (seen.has(name)) throw fail(`is ${JSON.stringify(name)}, which is there already`);
  seen.add(name);
}
