/**
 * The fleet's keys: from the environment or from files, which may change while the program runs.
 *
 * @module
 */
import type { FleetKeys } from "../wire/dwe.ts";

/** How long a file's content is believed, in milliseconds. */
const FRESH_MS = 1_000;
/** Most bytes of a key file. */
const MAX_KEY_FILE_BYTES = 4_096;

/** Where one key comes from; a file counts before a text. */
export interface KeySource {
  /** A file that holds the key. */
  readonly file?: string | undefined;
  /** The key itself, as it stood in the environment. */
  readonly text?: string | undefined;
}

/** Where both keys come from. Never to be printed or logged. */
export interface KeySources {
  /** The key in force. */
  readonly current: KeySource;
  /** The key before it, while a rotation is under way. */
  readonly previous: KeySource;
}

/** A fleet key as bytes: the text without white space around it; undefined when nothing is left. */
export function fleetKey(text: string | undefined): Uint8Array | undefined {
  const trimmed = text?.trim() ?? "";
  return trimmed === "" ? undefined : new TextEncoder().encode(trimmed);
}

/**
 * Reads a key file.
 *
 * @throws {Error} when it cannot be read, is larger than 4 KiB, not UTF-8 or empty. No error shows its content.
 */
function readKeyFile(file: string): string {
  const { size } = Deno.statSync(file);
  if (size > MAX_KEY_FILE_BYTES) {
    throw new Error(`reading the fleet key in ${file}: it has ${size} bytes, more than 4096`);
  }
  const bytes = Deno.readFileSync(file);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`reading the fleet key in ${file}: it is not UTF-8`);
  }
  // A file that is being written must not pass for a fleet without a key.
  if (text.trim() === "") throw new Error(`reading the fleet key in ${file}: it is empty`);
  return text;
}

/** The keys as they are now; files are read again when a second has passed. */
export class KeyRing {
  readonly #sources: KeySources;
  readonly #hasFiles: boolean;
  #keys: FleetKeys;
  #readAtMs: number;
  #error: string | undefined;

  /**
   * Reads the keys for the first time.
   *
   * @throws {Error} when a file cannot be read.
   */
  constructor(sources: KeySources, nowMs: number = Date.now()) {
    this.#sources = sources;
    this.#hasFiles = sources.current.file !== undefined || sources.previous.file !== undefined;
    this.#keys = this.#read();
    this.#readAtMs = nowMs;
  }

  /**
   * A ring that never changes.
   *
   * ```ts
   * import { assertEquals } from "@std/assert";
   * import { KeyRing } from "@tierfold/tierfold";
   *
   * const current = new TextEncoder().encode("fleet-secret");
   * assertEquals(KeyRing.of({ current }).keys(), { current });
   * ```
   */
  static of(keys: FleetKeys): Pick<KeyRing, "keys"> {
    return { keys: () => keys };
  }

  /** The keys in force; those read last stay when a file has become unreadable. */
  keys(nowMs: number = Date.now()): FleetKeys {
    if (this.#hasFiles && Math.abs(nowMs - this.#readAtMs) >= FRESH_MS) {
      this.#readAtMs = nowMs;
      try {
        this.#keys = this.#read();
        this.#error = undefined;
      } catch (error) {
        this.#error = error instanceof Error ? error.message : String(error);
      }
    }
    return this.#keys;
  }

  /** Why the files could not be read the last time; undefined when they could. */
  get error(): string | undefined {
    return this.#error;
  }

  #read(): FleetKeys {
    const read = ({ file, text }: KeySource) =>
      fleetKey(file === undefined ? text : readKeyFile(file));
    return { current: read(this.#sources.current), previous: read(this.#sources.previous) };
  }
}
