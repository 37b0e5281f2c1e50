import { assertEquals, assertStringIncludes } from "@std/assert";
import { fileURLToPath } from "node:url";

/** Stands in for npx: plays a test runner's output, and fails the task that the test names. */
const NPX = `#!/usr/bin/env bash
case "$*" in
  *" task test") cat "$PLAYED_OUTPUT"; exit "$PLAYED_STATUS" ;;
  *" task $FAILING_TASK"*) exit 1 ;;
esac
`;

interface Row {
  readonly name: string;
  /** What the runner prints. */
  readonly output: string;
  readonly status: number;
  readonly failingTask?: string;
  readonly last: string;
  readonly says?: string;
}

const rows: readonly Row[] = [
  {
    name: "all is well",
    output: "a ... ok (1ms)\n\nok | 34 passed (14 steps) | 0 failed (9s)\n",
    status: 0,
    last: "34 passed, 0 failed, 0 skipped",
  },
  {
    name: "skipped tests are named",
    output: "a ... ignored (0ms)\n  step b (skipped: no GPU) ... ignored (0ms)\n\n" +
      "ok | 3 passed | 0 failed | 12 ignored (1 step) (9s)\n",
    status: 0,
    last: "3 passed, 0 failed, 12 skipped",
    says: "skipped: step b (skipped: no GPU)\n",
  },
  {
    name: "tests fail",
    output: "FAILED | 33 passed (14 steps) | 2 failed (1 step) (9s)\n",
    status: 1,
    last: "33 passed, 2 failed, 0 skipped",
  },
  {
    name: "a check fails too",
    output: "FAILED | 33 passed | 2 failed (9s)\n",
    status: 1,
    failingTask: "lint",
    last: "33 passed, 3 failed, 0 skipped",
    says: "FAILED: lint",
  },
  {
    name: "only a check fails",
    output: "ok | 3 passed | 0 failed (9s)\n",
    status: 0,
    failingTask: "fmt --check",
    last: "3 passed, 1 failed, 0 skipped",
    says: "FAILED: format",
  },
  {
    name: "no test runs",
    output: "ok | 0 passed | 0 failed (9s)\n",
    status: 0,
    last: "0 passed, 1 failed, 0 skipped",
    says: "FAILED: no test was run",
  },
  {
    name: "every test is skipped",
    output: "ok | 0 passed | 0 failed | 3 ignored (9s)\n",
    status: 0,
    last: "0 passed, 1 failed, 3 skipped",
    says: "FAILED: no test was run",
  },
  {
    name: "the runner dies",
    output: "a ... ok (1ms)\n",
    status: 137,
    last: "0 passed, 1 failed, 0 skipped",
    says: "without a summary (status 137)",
  },
  {
    name: "the runner fails after its tests",
    output: "ok | 3 passed | 0 failed (9s)\n",
    status: 1,
    last: "3 passed, 1 failed, 0 skipped",
    says: "ended with status 1",
  },
];

Deno.test(".ci/run counts what the runner counts", async (t) => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/npx`, NPX, { mode: 0o755 });
    // Nothing is installed from a test.
    await Deno.writeTextFile(`${folder}/dpkg`, "#!/bin/sh\n", { mode: 0o755 });
    const script = fileURLToPath(new URL("../../.ci/run", import.meta.url));
    for (const { name, output, status, failingTask = "none", last, says = "" } of rows) {
      await t.step(name, async () => {
        await Deno.writeTextFile(`${folder}/output`, output);
        const { code, stdout } = await new Deno.Command("bash", {
          args: [script],
          env: {
            PATH: `${folder}:${Deno.env.get("PATH")}`,
            PLAYED_OUTPUT: `${folder}/output`,
            PLAYED_STATUS: String(status),
            FAILING_TASK: failingTask,
          },
          stdin: "null",
        }).output();
        const text = new TextDecoder().decode(stdout);
        assertEquals(text.trimEnd().split("\n").at(-1), last);
        assertEquals(code, last.includes(" 0 failed") ? 0 : 1);
        assertStringIncludes(text, says);
      });
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
