import { assertEquals } from "@std/assert";
import { getLogger } from "@logtape/logtape";
import { StrangerLog } from "../../serve/stranger_log.ts";
import { Log } from "../cluster/session.ts";

Deno.test("stranger log: a flood takes few lines, and none is passed over in silence", () => {
  using log = new Log();
  const strangers = new StrangerLog(getLogger(["tierfold", "relay"]));
  for (let i = 0; i < 1_000; i++) strangers.tell(`a:${i}`, "it said nothing", 5);
  assertEquals(log.lines.length, 50);
  strangers.tell("a:1000", "it said nothing", 1_100);
  strangers.tell("a:1001", "it said nothing", 1_150);
  assertEquals(log.lines.length, 51);
  assertEquals(log.lines[50]!.includes("a:1000 ended: it said nothing; before it 950 more"), true);
  strangers.tell("a:1002", "it said nothing", 60_000);
  assertEquals(log.lines[51]!.includes("before it 1 more"), true);
});
