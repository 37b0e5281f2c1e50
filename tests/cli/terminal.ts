// A shell on a terminal, as a person types into it: util-linux's script gives the terminal.
import { Child } from "../../bench/child.ts";

/** How long a shell may take for one line on a busy machine, in milliseconds. */
const PATIENCE_MS = 30_000;

/** A shell that completes what is typed. */
export class Terminal implements AsyncDisposable {
  readonly #child: Child;

  private constructor(child: Child) {
    this.#child = child;
  }

  /**
   * Starts a shell.
   *
   * @param setUp Its first line, which must make {@link Terminal.type} work: commands that answer with a
   *   line "got ...".
   */
  static async start(shell: string, cwd: string, setUp: string): Promise<Terminal> {
    const env = { TERM: "dumb", HOME: cwd, PS1: "$ ", INPUTRC: "/dev/null" };
    const command = ["script", "-q", "-c", shell, "/dev/null"];
    const terminal = new Terminal(new Child({ name: shell, command, cwd, env }));
    // The echo of the line has a quote within.
    await terminal.type(`${setUp}; echo 'g''ot' ready`);
    return terminal;
  }

  /** Types a line, with keys in it that complete, and gives what the command at its start answers. */
  async type(line: string): Promise<string> {
    await this.#child.send(line);
    return await this.#child.expect("got ", PATIENCE_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#child.finish();
  }
}
