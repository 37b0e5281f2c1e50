/**
 * Running the tools that builds are made with.
 *
 * @module
 */

/** A tool failed; the message has the end of what it wrote. */
export class CommandError extends Error {
  /** The class by name. */
  override readonly name = "CommandError";
}

/**
 * Runs a tool and gives its standard output.
 *
 * @throws {CommandError} when it ends with another exit code than 0, or does not exist.
 */
export async function output(command: readonly string[], cwd: string): Promise<string> {
  const [program = "", ...args] = command;
  const shown = command.slice(0, 3).join(" ");
  try {
    const { code, stdout, stderr } = await new Deno.Command(program, {
      args,
      cwd,
      env: { NO_COLOR: "1" },
      stdin: "null",
    }).output();
    if (code === 0) return new TextDecoder().decode(stdout);
    const [said = ""] = new TextDecoder().decode(stderr).slice(-4000).split("\nStack backtrace:");
    throw new CommandError(`${shown} ended with ${code} in ${cwd}:\n${said.trim()}`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    throw new CommandError(`${shown}: there is no ${program}, or no folder ${cwd}`);
  }
}
