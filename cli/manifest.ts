/**
 * The names of a training's tensors, from a file.
 *
 * @module
 */
import { type Manifest, parseManifest } from "../wire/manifest.ts";
import { describe } from "./options.ts";
import { optionalOption, UsageError } from "./spec.ts";
import { text } from "./values.ts";

/** The largest manifest read, in bytes: every name at its longest. */
const MAX_FILE_BYTES = 96 * 1024 ** 2;

/** The option that names the file. */
export const manifestOption = optionalOption({
  value: "FILE",
  help:
    'a JSON list of the tensors\' names, ["embed", "head"], for messages and checkpoints; numbers without it',
  schema: text("the name of a file"),
});

/**
 * Reads the file.
 *
 * @throws {UsageError} when it is no manifest.
 */
export function readManifest(path: string | undefined): Manifest | undefined {
  if (path === undefined) return undefined;
  const fail = (why: string) => new UsageError([`manifest ${path}: ${why}`]);
  let json: string;
  try {
    const { size } = Deno.statSync(path);
    if (size > MAX_FILE_BYTES) throw fail(`expected at most ${MAX_FILE_BYTES} bytes, got ${size}`);
    json = Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw fail(`cannot be read: ${describe(error)}`);
  }
  try {
    return parseManifest(json);
  } catch (error) {
    if (error instanceof RangeError) throw fail(error.message);
    throw error;
  }
}
