/**
 * Gradient blocks as files of a directory, one a block, named by its CID.
 *
 * @module
 */
import { GARW_CID } from "../../wire/garw.ts";
import type { BlockShelf } from "./store.ts";

const SUFFIX = ".garw";
const TEMPORARY = ".part";

/** Keeps blocks in a directory; a block appears there whole or not at all. */
export class DirectoryShelf implements BlockShelf {
  readonly #directory: string;
  #serial = 0;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Opens a directory, which is made when it is not there. */
  static async open(directory: string): Promise<DirectoryShelf> {
    await Deno.mkdir(directory, { recursive: true });
    return new DirectoryShelf(directory);
  }

  /** Names and sizes of the blocks there; leftovers of interrupted writes are removed. */
  async scan(): Promise<{ cid: string; bytes: number }[]> {
    const found: { cid: string; bytes: number; mtime: number }[] = [];
    for await (const { name, isFile } of Deno.readDir(this.#directory)) {
      if (!isFile) continue;
      if (name.endsWith(TEMPORARY)) await Deno.remove(`${this.#directory}/${name}`);
      const cid = name.slice(0, -SUFFIX.length);
      if (!name.endsWith(SUFFIX) || !GARW_CID.test(cid)) continue;
      const { size, mtime } = await Deno.stat(this.#path(cid));
      found.push({ cid, bytes: size, mtime: mtime?.getTime() ?? 0 });
    }
    return found.sort((a, b) => a.mtime - b.mtime).map(({ cid, bytes }) => ({ cid, bytes }));
  }

  /** The bytes under a name, or undefined. */
  async read(cid: string): Promise<Uint8Array | undefined> {
    try {
      return await Deno.readFile(this.#path(cid));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return undefined;
      throw error;
    }
  }

  /** Writes a temporary file, forces it to the disk and renames it. */
  async write(cid: string, bytes: Uint8Array): Promise<void> {
    const path = this.#path(cid);
    const temporary = `${path}.${this.#serial++}${TEMPORARY}`;
    try {
      using file = await Deno.open(temporary, { write: true, createNew: true });
      for (let done = 0; done < bytes.length;) done += await file.write(bytes.subarray(done));
      await file.sync();
      await Deno.rename(temporary, path);
    } catch (error) {
      await Deno.remove(temporary).catch(() => {});
      throw error;
    }
    // The new name itself is on the disk only once the directory is.
    if (Deno.build.os === "windows") return;
    using directory = await Deno.open(this.#directory, { read: true });
    await directory.sync();
  }

  /** Removes the file under a name, if there is one. */
  async remove(cid: string): Promise<void> {
    try {
      await Deno.remove(this.#path(cid));
    } catch (error) {
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }

  #path(cid: string): string {
    return `${this.#directory}/${cid}${SUFFIX}`;
  }
}
