/**
 * The session salt, read from where secrets may stand: the environment or a file.
 *
 * @module
 */

import { SALT_BYTES } from "../wire/limits.ts";
import { saltWeakness } from "../wire/salt.ts";
import { describe, type OptionSource, type ReadEnvironment } from "./options.ts";
import { UsageError } from "./spec.ts";

/** The variable that holds the salt itself. */
export const SALT_VARIABLE = "TIERFOLD_SALT";

/** Where to look for the salt. */
export interface SaltSources {
  readonly env: ReadEnvironment;
  /** The value of --salt-file, and where that came from. */
  readonly saltFile?: string | undefined;
  readonly saltFileSource?: OptionSource | undefined;
}

/**
 * Reads the session salt: from the file named by a --salt-file flag, else from TIERFOLD_SALT, else from
 * the file that the environment or the config file names.
 *
 * @returns 16 bytes.
 * @throws {UsageError} when there is none, or it is not 32 hex digits; what it holds is not repeated.
 */
export function readSalt({ env, saltFile, saltFileSource }: SaltSources): Uint8Array<ArrayBuffer> {
  const variable = env(SALT_VARIABLE);
  if (saltFile !== undefined && saltFileSource === "environment" && variable !== undefined) {
    throw new UsageError([
      `${SALT_VARIABLE} and TIERFOLD_SALT_FILE are both set; unset one, they may disagree`,
    ]);
  }
  if (saltFile !== undefined && (saltFileSource === "flag" || variable === undefined)) {
    return parseSalt(readSaltFile(saltFile), `salt file ${saltFile}`);
  }
  if (variable !== undefined) return parseSalt(variable, `${SALT_VARIABLE} (environment)`);
  throw new UsageError([
    `the session salt is missing: set ${SALT_VARIABLE} to 32 hex digits, or name a file with ` +
    `--salt-file; every rank, relay and controller of a session needs the same one ` +
    `(make one: openssl rand -hex 16). A variable that is set is seen only with --allow-env=TIERFOLD_*`,
  ]);
}

/**
 * Turns 32 hex digits, with white space around them, into 16 bytes.
 *
 * @param where What the digits were read from, for the error.
 * @throws {UsageError} otherwise, and when the salt could be guessed.
 */
export function parseSalt(digits: string, where: string): Uint8Array<ArrayBuffer> {
  const trimmed = digits.trim();
  if (!/^[0-9a-fA-F]{32}$/.test(trimmed)) {
    const fault = /^[0-9a-fA-F]*$/.test(trimmed) ? "" : ", not all of them hex digits";
    throw new UsageError([
      `${where}: expected the session salt as ${SALT_BYTES * 2} hex digits, ` +
      `got ${trimmed.length} characters${fault}`,
    ]);
  }
  const salt = Uint8Array.fromHex(trimmed);
  const weakness = saltWeakness(salt);
  if (weakness === undefined) return salt;
  throw new UsageError([
    `${where}: the session salt could be guessed: ${weakness}; make one with openssl rand -hex 16`,
  ]);
}

/** More than a salt and its line end: what a wrong file may cost in memory, in bytes. */
const MAX_FILE_BYTES = 4096;

function readSaltFile(path: string): string {
  try {
    const { size } = Deno.statSync(path);
    if (size <= MAX_FILE_BYTES) return Deno.readTextFileSync(path);
    throw new UsageError([
      `salt file ${path}: expected 32 hex digits, got a file of ${size} bytes`,
    ]);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError([`salt file ${path}: cannot be read: ${describe(error)}`]);
  }
}
