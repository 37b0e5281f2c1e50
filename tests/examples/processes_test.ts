import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { layOutHosts } from "../../examples/cluster.ts";
import { ProcessError, ProcessGroup, type ProcessPlan } from "../../examples/processes.ts";
import { alive } from "./descendants.ts";

/** A process that runs this code. */
const plan = (code: string, more: Partial<ProcessPlan> = {}): ProcessPlan => ({
  name: "the child",
  script: new URL(`data:application/typescript,${encodeURIComponent(code)}`),
  permissions: [],
  args: [],
  ...more,
});

const FOREVER = "setInterval(() => {}, 1000);";
const STUBBORN = `Deno.addSignalListener("SIGTERM", () => {}); console.log("up"); ${FOREVER}`;

/** Starts a process and resolves with it once it has said its first line. */
async function started(group: ProcessGroup, code: string) {
  const up = Promise.withResolvers<void>();
  const child = group.start(plan(code, { onLine: () => up.resolve() }));
  await Promise.race([up.promise, group.failed]);
  return child;
}

Deno.test("lines arrive whole and in order, and a good end is no failure", async () => {
  await using group = new ProcessGroup();
  const lines: string[] = [];
  const code = `console.log("a"); console.log("b b"); console.log(Deno.args.join("+"));`;
  const child = group.start(plan(code, { args: ["x", "y"], onLine: (line) => lines.push(line) }));
  await child.ended;
  assertEquals(lines, ["a", "b b", "x+y"]);
});

Deno.test("secrets travel in the environment", async () => {
  await using group = new ProcessGroup();
  const lines: string[] = [];
  const child = group.start(plan(`console.log(Deno.env.get("SECRET"));`, {
    permissions: ["--allow-env=SECRET"],
    env: { SECRET: "s" },
    onLine: (line) => lines.push(line),
  }));
  await child.ended;
  assertEquals(lines, ["s"]);
});

Deno.test("a process says where it listens", async () => {
  await using group = new ProcessGroup();
  const child = group.start(plan(`console.log("listening 127.0.0.1:7"); ${FOREVER}`));
  assertEquals(await child.listening(), "127.0.0.1:7");
});

Deno.test("one that ends before it listens is told from one that listens", async () => {
  await using group = new ProcessGroup();
  await assertRejects(
    () => group.start(plan(`console.log("hello");`)).listening(),
    ProcessError,
    "the child ended before it listened",
  );
});

Deno.test("a bad end fails the group with name, exit code and last words", async () => {
  await using group = new ProcessGroup();
  group.start(plan(`console.error("no more paper"); Deno.exit(7);`));
  const error = await assertRejects(() => group.failed, ProcessError);
  assertEquals(error.message, "the child ended with exit code 7; it said:\nno more paper");
});

Deno.test("a killed process fails the group, and the others are ended with it", async () => {
  const group = new ProcessGroup();
  const victim = await started(group, `console.log("up"); ${FOREVER}`);
  const other = await started(group, `console.log("up"); ${FOREVER}`);
  Deno.kill(victim.pid, "SIGKILL");
  const error = await assertRejects(() => group.failed, ProcessError);
  assertStringIncludes(error.message, "the child ended by SIGKILL");
  await group.stop();
  await assertRejects(() => other.ended, ProcessError, "SIGTERM");
  assertEquals(alive([victim.pid, other.pid]), []);
});

Deno.test("a process that does not listen to SIGTERM is killed", async () => {
  const group = new ProcessGroup();
  const child = await started(group, STUBBORN);
  await group.stop();
  await assertRejects(() => child.ended, ProcessError, "SIGKILL");
  assertEquals(alive([child.pid]), []);
});

Deno.test("a line that cannot be understood fails the group and ends its process", async () => {
  await using group = new ProcessGroup();
  const child = group.start(plan(`console.log("{"); ${FOREVER}`, {
    onLine: (line) => JSON.parse(line),
  }));
  await assertRejects(() => group.failed, SyntaxError);
  await assertRejects(() => child.ended);
  assertEquals(alive([child.pid]), []);
});

Deno.test("a group that is being stopped starts nothing", async () => {
  const group = new ProcessGroup();
  await group.stop();
  assertThrows(() => group.start(plan("")), ProcessError, "being stopped");
});

Deno.test("ranks are dealt to hosts in order, as evenly as it goes", () => {
  const layout = (ranks: number, hosts: number) => layOutHosts(ranks, hosts).map((h) => h.ranks);
  assertEquals(layout(4, 2), [[0, 1], [2, 3]]);
  assertEquals(layout(7, 3), [[0, 1, 2], [3, 4], [5, 6]]);
  assertEquals(layout(1, 1), [[0]]);
  assert(
    new Set(layOutHosts(4, 4).map(({ name }) => name)).size === 4,
    "hosts have their own names",
  );
});
