// Where fleet keys come from, and how they change while a program runs.
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { fleetKey, KeyRing } from "../../delta/keys.ts";
import { key } from "./fragments.ts";

async function inDirectory(run: (directory: string) => void): Promise<void> {
  const directory = await Deno.makeTempDir();
  try {
    run(directory);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}

Deno.test("a fleet key is trimmed text; empty means none", () => {
  assertEquals(fleetKey(" fleet-secret\n"), key("fleet-secret"));
  for (const none of [undefined, "", " \n\t"]) assertEquals(fleetKey(none), undefined);
  const ring = new KeyRing({ current: { text: "a\n" }, previous: {} });
  assertEquals(ring.keys(), { current: key("a"), previous: undefined });
});

Deno.test("key files are read again after a second, and a bad one does not disarm the fleet", () =>
  inDirectory((directory) => {
    const [current, previous] = [`${directory}/current`, `${directory}/previous`];
    Deno.writeTextFileSync(current, "one\n");
    Deno.writeTextFileSync(previous, "zero");
    const ring = new KeyRing({ current: { file: current }, previous: { file: previous } }, 0);
    assertEquals(ring.keys(0), { current: key("one"), previous: key("zero") });
    Deno.writeTextFileSync(current, "two");
    Deno.writeTextFileSync(previous, "one");
    assertEquals(ring.keys(999), { current: key("one"), previous: key("zero") });
    assertEquals(ring.keys(1_000), { current: key("two"), previous: key("one") });
    const bad: [() => void, string][] = [
      [() => Deno.writeTextFileSync(current, " \n"), "empty"],
      [() => Deno.writeFileSync(current, Uint8Array.of(0xff, 0xfe)), "UTF-8"],
      [() => Deno.writeFileSync(current, new Uint8Array(5_000)), "5000 bytes"],
      [() => Deno.removeSync(current), "No such file"],
    ];
    for (const [i, [spoil, why]] of bad.entries()) {
      spoil();
      assertEquals(ring.keys(2_000 + 1_000 * i).current, key("two"));
      assertStringIncludes(ring.error!, why);
      const sources = { current: { file: current }, previous: {} };
      assertThrows(() => new KeyRing(sources), Error, why);
    }
    Deno.writeTextFileSync(current, "three");
    assertEquals(ring.keys(9_000).current, key("three"));
    assertEquals(ring.error, undefined);
  }));
