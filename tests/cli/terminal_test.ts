// What differs on a terminal: colours, unless NO_COLOR is set, and lines that are redrawn in place.
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { testWith } from "../tools.ts";

const ESC = "\x1b";

/** What a program of these tests writes: to a terminal, or to a pipe. */
async function written(
  how: "terminal" | "pipe",
  script: string,
  args: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<string> {
  const path = new URL(script, import.meta.url).pathname;
  const run = [Deno.execPath(), "run", "--quiet", "--allow-env=TIERFOLD_*", path, ...args];
  const [program, ...rest] = how === "pipe"
    ? run
    : ["script", "-q", "-e", "-c", run.join(" "), "/dev/null"];
  const { code, stdout, stderr } = await new Deno.Command(program!, {
    args: rest,
    clearEnv: true,
    env: { PATH: Deno.env.get("PATH")!, HOME: Deno.env.get("HOME")!, TERM: "xterm", ...env },
    stdin: "null",
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assertEquals(code, 3 * Number(env.TIERFOLD_TEST_ACT === "peer"), text);
  return text;
}

const failing = { TIERFOLD_TEST_ACT: "peer", TIERFOLD_SALT: "9d1c4be07a52f8360ee5b3476d91c82f" };
const world = ["--world-size", "2"];
const program = (how: "terminal" | "pipe", env = {}) =>
  written(how, "fixtures/program.ts", world, { ...failing, ...env });

testWith(["script"], "terminal: logs are coloured, and not with NO_COLOR", async () => {
  const colored = await program("terminal");
  assertStringIncludes(colored, "rank 3 died");
  assertStringIncludes(colored, `${ESC}[`);
  const plain = await program("terminal", { NO_COLOR: "1" });
  assertStringIncludes(plain, "rank 3 died");
  assert(!plain.includes(ESC), plain);
});

Deno.test("terminal: logs in a pipe have no colours", async () => {
  const piped = await program("pipe");
  assertStringIncludes(piped, "rank 3 died");
  assert(!piped.includes(ESC), piped);
});

testWith(["script"], "terminal: progress is redrawn in place", async () => {
  const text = await written("terminal", "fixtures/progress.ts");
  assertStringIncludes(text, `step 1\r${ESC}[2Kstep 2`);
});

Deno.test("terminal: progress in a pipe is plain lines", async () => {
  assertEquals(await written("pipe", "fixtures/progress.ts"), "step 1\nstep 2\n");
});
