/**
 * The files that a build is made of: those of the commit, so that a build can say which one it is.
 *
 * @module
 */
import { CommandError, output } from "./command.ts";

/** Files to build from; at the end of an `await using` block they are gone. */
export class CommitTree implements AsyncDisposable {
  readonly #temporary: boolean;

  private constructor(
    /** Where they lie. */
    readonly folder: string,
    /** What they are, for people. */
    readonly what: string,
    temporary: boolean,
  ) {
    this.#temporary = temporary;
  }

  /**
   * Takes the files of HEAD out of a clone. An archive of a commit is taken as it is: it says its commit
   * itself.
   *
   * @throws {CommandError} when git or tar fail.
   */
  static async open(root: string): Promise<CommitTree> {
    const commit = await headOf(root);
    if (commit === undefined) return new CommitTree(root, "files that are no git clone", false);
    const folder = await Deno.makeTempDir({ prefix: "tierfold-" });
    const changed = (await output(["git", "status", "--porcelain"], root)).trim() !== "";
    const left = changed ? "; uncommitted changes are not in it" : "";
    const tree = new CommitTree(folder, `commit ${commit}${left}`, true);
    try {
      // A compressed archive would not be smaller for long; tar reads it from a file.
      await output(["git", "archive", "--output", `${folder}/tree.tar`, "HEAD"], root);
      await output(["tar", "-xf", "tree.tar"], folder);
      await Deno.remove(`${folder}/tree.tar`);
      return tree;
    } catch (error) {
      await tree[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#temporary) await Deno.remove(this.folder, { recursive: true });
  }
}

/** The commit of a clone; undefined where there is none. */
async function headOf(root: string): Promise<string | undefined> {
  try {
    const top = (await output(["git", "rev-parse", "--show-toplevel"], root)).trim();
    // Some other repository's folder may hold an archive of ours.
    if (await Deno.realPath(top) !== await Deno.realPath(root)) return undefined;
    return (await output(["git", "rev-parse", "HEAD"], root)).trim();
  } catch (error) {
    if (error instanceof CommandError) return undefined;
    throw error;
  }
}
