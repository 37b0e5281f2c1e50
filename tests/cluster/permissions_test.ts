// The permissions in docs/operations.md: a session runs with exactly these, and with none of them less.
import { assert, assertEquals } from "@std/assert";
import { Cluster } from "./cluster.ts";

const page = Deno.readTextFileSync(new URL("../../docs/operations.md", import.meta.url));

/** The flags of a row, its places filled in. */
function flags(command: string, places: Readonly<Record<string, string>>): string[] {
  const row = page.split("\n").find((line) => line.startsWith(`| ${command} `));
  assert(row !== undefined, `docs/operations.md lists no permissions of ${command}`);
  const found = [...row!.matchAll(/`(--allow-[^`]+)`/g)].map(([, flag]) => flag!);
  assert(found.length > 0, row);
  return found.map((flag) => flag.replace(/[A-Z]{5,}(?=,|$)/g, (place) => places[place] ?? place));
}

/** An address on loopback that nobody listens at. */
function free(): string {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  listener.close();
  return `127.0.0.1:${listener.addr.port}`;
}

Deno.test("permissions: relay and controller run with what is documented, and not with less", async () => {
  const [root, host] = [free(), free()];
  const controller = flags("`controller.ts`", { LISTEN: root });
  const relay = flags("`relay.ts`", { LISTEN: host, CONTROLLER: root });
  assertEquals(controller, [`--allow-net=${root}`, "--allow-env=TIERFOLD_*"]);
  assertEquals(relay, [`--allow-net=${host},${root}`, "--allow-env=TIERFOLD_*"]);
  await using cluster = await Cluster.start(
    [[0]],
    { listen: root, permissions: controller },
    { 0: { listen: host, permissions: relay } },
  );
  const rank = await cluster.ranks([0]);
  await rank.begin([[3]]);
  assertEquals((await rank.round()).values, [[3]]);

  const args = ["--host", "b", "--ranks", "0", "--controller", root, "--connect-deadline", "1s"];
  for (
    const permissions of [
      relay.slice(0, 1),
      relay.slice(1),
      [`--allow-net=${root}`, ...relay.slice(1)],
      [`--allow-net=${host}`, ...relay.slice(1)],
    ]
  ) {
    const less = cluster.server(`with ${permissions}`, "../../relay.ts", args, { permissions });
    assert(await less.child.finish(30_000) !== 0, `${permissions} is enough`);
  }
  for (const permissions of [controller.slice(0, 1), controller.slice(1)]) {
    const less = cluster.server(`with ${permissions}`, "../../controller.ts", [], { permissions });
    assert(await less.child.finish(30_000) !== 0, `${permissions} is enough`);
  }
  await cluster.finish([rank]);
});
