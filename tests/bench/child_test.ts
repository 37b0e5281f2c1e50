import { assert, assertEquals, assertRejects } from "@std/assert";
import { Child, killAllChildren, succeeds } from "../../bench/child.ts";
import { cpuSeconds, memory, threadCpuSeconds } from "../../bench/proc.ts";

const deno = (code: string) => ({ name: "a child", command: [Deno.execPath(), "eval", code] });

Deno.test("a child is listened to line by line and ends with its input", async () => {
  const child = new Child({
    name: "cat",
    command: ["sh", "-c", "echo noise; echo got 1; read line; echo got $line; exit 3"],
  });
  assertEquals(await child.expect("got ", 5_000), "1");
  await child.send("2");
  assertEquals(await child.expect("got ", 5_000), "2");
  assertEquals(await child.finish(), 3);
});

Deno.test("a child that ends or says nothing is an error with what it wrote", async () => {
  const ended = new Child({ name: "short", command: ["sh", "-c", "echo because >&2"] });
  await assertRejects(() => ended.expect("ready", 5_000), Error, "because");
  await ended.finish();
  const silent = new Child({ name: "silent", command: ["sleep", "60"] });
  await assertRejects(() => silent.expect("ready", 50), Error, `"silent" said no "ready"`);
  assert(await silent.stop() !== 0);
});

Deno.test("a child that does not end in time is killed", async () => {
  const deaf = new Child({
    name: "deaf",
    command: ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"],
  });
  await deaf.expect("ready", 5_000);
  deaf.kill("SIGTERM");
  assertEquals(await deaf.finish(200), 128 + 9);
  const other = new Child({ name: "other", command: ["sleep", "60"] });
  killAllChildren();
  assertEquals(await other.finish(), 128 + 9);
});

Deno.test("commands that do not exist do not succeed", async () => {
  assertEquals(await succeeds(["true"]), true);
  assertEquals(await succeeds(["false"]), false);
  assertEquals(await succeeds(["no-such-command-here"]), false);
});

Deno.test("CPU and memory of a process are read from /proc", async () => {
  const busy = new Child(deno(`
    const held = new Uint8Array(50e6).fill(1);
    const until = performance.now() + 300;
    while (performance.now() < until);
    console.log("done", held.length);
    await new Promise((resolve) => setTimeout(resolve, 60_000));
  `));
  await busy.expect("done", 20_000);
  const { user, system } = cpuSeconds(busy.pid);
  assert(user + system >= 0.1, `${user} + ${system} seconds of CPU`);
  const { rss_mb, peak_mb } = memory(busy.pid);
  assert(rss_mb >= 50 && peak_mb >= rss_mb, `${rss_mb} MB resident, ${peak_mb} MB at most`);
  const threads = [...threadCpuSeconds(busy.pid).values()];
  assert(threads.some(({ name }) => name === "deno"), "no thread is called deno");
  await busy.stop();
});
