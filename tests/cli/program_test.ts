import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TextLineStream } from "@std/streams";
import { ExitCode } from "../../cli/program.ts";
import { VERSION } from "../../cli/version.ts";

const SALT = "9d1c4be07a52f8360ee5b3476d91c82f";

interface Start {
  readonly act?: string;
  readonly salt?: string;
  readonly args?: readonly string[];
  /** Deno's permissions; by default the variables of ours and nothing more. */
  readonly allow?: readonly string[];
}

function command({ act = "", salt = SALT, args = [], allow = ["--allow-env=TIERFOLD_*"] }: Start) {
  const program = new URL("fixtures/program.ts", import.meta.url).href;
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "--no-prompt", "--quiet", ...allow, program, ...args],
    env: { TIERFOLD_TEST_ACT: act, ...(salt === "" ? {} : { TIERFOLD_SALT: salt }) },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
}

async function outcome(start: Start): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await command(start).output();
  const decoder = new TextDecoder();
  const [out, err] = [decoder.decode(stdout), decoder.decode(stderr)];
  assert(!out.includes(SALT) && !err.includes(SALT), "the salt is printed");
  return { code, out, err };
}

const world = ["--world-size", "2"];

Deno.test("program: exit codes and what stands where", async (t) => {
  const rows: { name: string; start: Start; code: number; out?: string; err?: string }[] = [
    {
      name: "a good end, with the one permission it needs",
      start: { args: world },
      code: ExitCode.ok,
      out: "listening 127.0.0.1:7\n",
    },
    {
      name: "an IPv6 address stands in brackets",
      start: { args: [...world, "--listen", "[::1]:0"] },
      code: ExitCode.ok,
      out: "listening [::1]:7\n",
    },
    {
      name: "a peer's failure",
      start: { act: "peer", args: world },
      code: ExitCode.peer,
      err: "rank 3 died",
    },
    {
      name: "a failure here",
      start: { act: "throw", args: world },
      code: ExitCode.failed,
      err: "disk full",
    },
    {
      name: "a broken promise of ours comes with its stack",
      start: { act: "broken", args: [...world, "--log-format", "json"] },
      code: ExitCode.failed,
      err: "program.ts:",
    },
    {
      name: "a missing option",
      start: {},
      code: ExitCode.usage,
      err: "--world-size N is needed",
    },
    {
      name: "an unknown option",
      start: { args: ["--wrld-size", "2"] },
      code: ExitCode.usage,
      err: "unknown option '--wrld-size'",
    },
    {
      name: "a salt on the command line",
      start: { args: [...world, `--salt=${SALT}`] },
      code: ExitCode.usage,
      err: "no such option",
    },
    {
      name: "no salt",
      start: { args: world, salt: "" },
      code: ExitCode.usage,
      err: "the session salt is missing",
    },
    {
      name: "the environment may not be read",
      start: { args: world, allow: [] },
      code: ExitCode.usage,
      err: "--allow-env=TIERFOLD_*",
    },
    {
      name: "a config file that may not be read",
      start: { args: ["--config", "deno.json"] },
      code: ExitCode.usage,
      err: "config file deno.json: cannot be read",
    },
    {
      name: "help needs nothing",
      start: { args: ["--help"], salt: "", allow: [] },
      code: ExitCode.ok,
      out: "--world-size <N>",
    },
    {
      name: "version needs nothing",
      start: { args: ["--version"], salt: "", allow: [] },
      code: ExitCode.ok,
      out: `tierfold-controller ${VERSION}, commit `,
    },
    {
      name: "a completion script needs nothing",
      start: { args: ["--completion", "bash"], salt: "", allow: [] },
      code: ExitCode.ok,
      out: "complete -o default -F _tierfold_controller tierfold-controller\n",
    },
    {
      name: "the config file's schema needs nothing",
      start: { args: ["--print-schema"], salt: "", allow: [] },
      code: ExitCode.ok,
      out: '"title": "config file of tierfold-controller"',
    },
    {
      name: "a shell without completion",
      start: { args: ["--completion", "sh"] },
      code: ExitCode.usage,
      err: '--completion: expected one of bash, zsh, fish, got "sh"',
    },
    {
      name: "print-config",
      start: { args: [...world, "--print-config"] },
      code: ExitCode.ok,
      out: `"salt": "from TIERFOLD_SALT"`,
    },
  ];
  for (const { name, start, code, out, err } of rows) {
    await t.step(name, async () => {
      const result = await outcome(start);
      assertEquals(result.code, code, result.err);
      if (out === undefined) assert(!result.out.includes("Usage"), result.out);
      else assertStringIncludes(result.out, out);
      if (err === undefined) assertEquals(result.err, "");
      else assertStringIncludes(result.err, err);
    });
  }
});

Deno.test("program: --print-config prints JSON alone", async () => {
  const { out } = await outcome({ args: [...world, "--print-config"] });
  const { options } = JSON.parse(out);
  assertEquals(options.worldSize, {
    value: 2,
    source: "flag",
    flag: "--world-size",
    environment: "TIERFOLD_WORLD_SIZE",
  });
});

/** Starts the program, waits until it listens, and gives its error lines when it has ended. */
async function signalled(act: string, signals: readonly Deno.Signal[]) {
  const child = command({ act, args: world }).spawn();
  const errors = new Response(child.stderr).text();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).pipeThrough(new TextLineStream());
  for await (const line of lines) {
    assertMatch(line, /^listening 127\.0\.0\.1:7$/);
    const [first, second] = signals;
    if (first !== undefined) child.kill(first);
    if (second !== undefined) {
      // Only once the first was taken does the second mean "at once".
      await new Promise((resolve) => setTimeout(resolve, 300));
      child.kill(second);
    }
  }
  return { code: (await child.status).code, errors: await errors };
}

Deno.test("program: SIGINT and SIGTERM end the session", {
  ignore: Deno.build.os === "windows",
}, async () => {
  const [interrupted, terminated] = await Promise.all([
    signalled("wait", ["SIGINT"]),
    signalled("wait", ["SIGTERM"]),
  ]);
  assertEquals(interrupted.code, 130);
  assertEquals(terminated.code, 143);
  assertStringIncludes(interrupted.errors, "SIGINT: ending the session");
});

Deno.test("program: one that hangs ends after 5 s, or at the second signal", {
  ignore: Deno.build.os === "windows",
}, async () => {
  const [alone, twice] = await Promise.all([
    signalled("hang", ["SIGTERM"]),
    signalled("hang", ["SIGTERM", "SIGTERM"]),
  ]);
  assertEquals(alone.code, 143);
  assertStringIncludes(alone.errors, "the session did not end within 5000 ms");
  assertEquals(twice.code, 143);
  assert(!twice.errors.includes("did not end within"), twice.errors);
});
