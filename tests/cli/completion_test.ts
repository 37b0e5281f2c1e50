// Completion scripts, in the shells that they are for.
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { renderCompletion } from "../../cli/completion.ts";
import { controllerProgram } from "../../cli/controller_options.ts";
import { SHELLS, shownFlags } from "../../cli/flags.ts";
import { relayProgram } from "../../cli/relay_options.ts";
import { UsageError } from "../../cli/spec.ts";
import { testWith } from "../tools.ts";
import { Terminal } from "./terminal.ts";

/** A folder with a script per shell, a file and a folder to be completed. */
async function withScripts(body: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    for (const program of [controllerProgram, relayProgram]) {
      for (const shell of SHELLS) {
        const path = `${folder}/${program.name}.${shell}`;
        await Deno.writeTextFile(path, renderCompletion(program, shell));
      }
    }
    await Deno.mkdir(`${folder}/states`);
    await Deno.writeTextFile(`${folder}/salt`, "");
    await body(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** What each shell offers after a line: words, sorted. */
const rows: readonly (readonly [line: string, offered: readonly string[]])[] = [
  ["tierfold-controller --kern", ["--kernel", "--kernel-cache"]],
  ["tierfold-controller --kernel ", ["auto", "ort-wasm", "ort-webgpu", "plain", "simd"]],
  ["tierfold-controller --kernel or", ["ort-wasm", "ort-webgpu"]],
  ["tierfold-controller --kernel=pl", ["plain"]],
  ["tierfold-controller --world-size 8 --completion ", ["bash", "fish", "zsh"]],
  ["tierfold-controller --listen ", []],
  ["tierfold-controller --salt-file sa", ["salt"]],
  ["tierfold-controller --state ", ["states"]],
  ["tierfold-relay --nonfinite ", ["allow", "refuse", "zero"]],
  ["tierfold-relay --resu", []],
];

/** Makes the commands answer with their arguments, whose completion is looked at. */
const ANSWER = 'tierfold-controller() { echo "got $*"; }; tierfold-relay() { echo "got $*"; }';
/** Inserts all completions of the word at the cursor: Esc and a star. */
const ALL = "\x1b*";

/** What stands in the place of the word that was completed. */
function offers(line: string, answer: string): string[] {
  const words = answer.split(" ").filter((word) => word !== "");
  const typed = line.split(" ").slice(1);
  const rest = words.slice(typed.length - 1);
  const last = typed.at(-1)!;
  // Nothing was offered: what was typed stays as it was.
  if (rest.length === 1 && rest[0] === last) return [];
  return rest.map((word) => word.replace(/^--[a-z-]+=|\/$/g, "")).sort();
}

testWith(["bash", "script"], "completion: bash", () =>
  withScripts(async (folder) => {
    const setUp = `for s in *.bash; do source $s; done; ${ANSWER}`;
    await using shell = await Terminal.start("bash --norc -i", folder, setUp);
    for (const [line, offered] of rows) {
      assertEquals(offers(line, await shell.type(line + ALL)), offered, line);
    }
  }));

testWith(["zsh", "script"], "completion: zsh", () =>
  withScripts(async (folder) => {
    const setUp = "autoload -U compinit && compinit -u -D; unsetopt beep; " +
      "zle -C all complete-word _generic; zstyle ':completion:all:*' completer _all_matches _complete; " +
      "zstyle ':completion:all:*' insert yes; bindkey '^[*' all; " +
      `for s in *.zsh; do source $s; done; ${ANSWER}`;
    await using shell = await Terminal.start("zsh -f -i", folder, setUp);
    for (const [line, offered] of rows) {
      assertEquals(offers(line, await shell.type(line + ALL)), offered, line);
    }
  }));

testWith(["fish"], "completion: fish", () =>
  withScripts(async (folder) => {
    const asked = rows.map(([line]) => `complete -C '${line}'; echo ----`).join("; ");
    const { stdout, code } = await new Deno.Command("fish", {
      args: ["--no-config", "-c", `for s in *.fish; source $s; end; ${asked}`],
      cwd: folder,
      env: { HOME: folder },
      stderr: "inherit",
    }).output();
    assertEquals(code, 0);
    const answers = new TextDecoder().decode(stdout).split("----\n");
    for (const [i, [line, offered]] of rows.entries()) {
      const words = answers[i]!.split("\n").filter((word) => word !== "")
        .map((word) => word.replace(/\t.*$/, "").replace(/^--[a-z-]+=|\/$/g, ""));
      assertEquals(words.sort(), offered, line);
    }
  }));

Deno.test("completion: every flag of the help is in every script", () => {
  for (const program of [controllerProgram, relayProgram]) {
    for (const shell of SHELLS) {
      const script = renderCompletion(program, shell);
      for (const { flag } of shownFlags(program.table)) {
        assertStringIncludes(script, shell === "fish" ? `-l ${flag.slice(2)} ` : flag);
      }
    }
  }
});

Deno.test("completion: another shell is refused, and the known ones named", () => {
  assertThrows(
    () => renderCompletion(relayProgram, "tcsh"),
    UsageError,
    'expected one of bash, zsh, fish, got "tcsh"',
  );
});
