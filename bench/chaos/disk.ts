/**
 * A disk small enough to be filled: a tmpfs, where this process may mount one.
 *
 * @module
 */

/** Bytes of the disk: a few checkpoints and a ledger fit. */
const DISK_BYTES = 24 * 1024 ** 2;

/** A directory on a disk of its own. */
export class SmallDisk implements AsyncDisposable {
  readonly #filler: string;

  private constructor(
    /** The directory. */
    readonly path: string,
    /** Why it is no disk of its own and cannot be filled; undefined when it can. */
    readonly plain: string | undefined,
  ) {
    this.#filler = `${path}/filler`;
  }

  /** Mounts one in a fresh directory; without the right to, the directory is just that. */
  static async make(): Promise<SmallDisk> {
    const path = await Deno.makeTempDir({ prefix: "tierfold-chaos-" });
    const reason = await run("mount", "-t", "tmpfs", "-o", `size=${DISK_BYTES}`, "tmpfs", path);
    return new SmallDisk(path, reason);
  }

  /** Takes all the room that is left. */
  async fill(): Promise<void> {
    using file = await Deno.open(this.#filler, { create: true, append: true });
    const chunk = new Uint8Array(64 * 1024);
    try {
      for (let all = 0; all < 2 * DISK_BYTES; all += chunk.length) await file.write(chunk);
    } catch {
      // Full: what was wanted.
    }
  }

  /** Gives the room back. */
  async empty(): Promise<void> {
    await Deno.remove(this.#filler).catch(() => {});
  }

  /** Unmounts and removes it. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.plain === undefined) await run("umount", this.path);
    await Deno.remove(this.path, { recursive: true }).catch(() => {});
  }
}

/** Runs a command; undefined when it went well, and otherwise why not. */
async function run(command: string, ...args: readonly string[]): Promise<string | undefined> {
  try {
    const { success, stderr } = await new Deno.Command(command, { args: [...args] }).output();
    return success ? undefined : new TextDecoder().decode(stderr).trim();
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
