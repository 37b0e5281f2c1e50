import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { getLogger } from "@logtape/logtape";
import { type LogOptions, startLogging } from "../../cli/log.ts";

/** The lines that `body` logs. */
function logged(options: LogOptions, color: boolean, body: () => void): string[] {
  const lines: string[] = [];
  const logging = startLogging(options, { write: (line) => lines.push(line), color });
  try {
    body();
  } finally {
    logging[Symbol.dispose]();
  }
  return lines;
}

const relay = getLogger(["tierfold", "relay"]);

Deno.test("log: human lines carry time, level, category, message and the unsaid properties", () => {
  const lines = logged({ format: "human", level: "info" }, false, () => {
    relay.info("rank {rank} left: {reason}", { rank: 3, reason: "reset", peer: "127.0.0.1:9" });
    relay.warn("frame refused: {error}", { error: new TypeError("bad") });
    relay.debug("not at this level");
  });
  assertEquals(lines.length, 2);
  assertMatch(
    lines[0] ?? "",
    /^\d\d:\d\d:\d\d\.\d{3} info {4}relay: rank 3 left: reset peer="127.0.0.1:9"\n$/,
  );
  assertMatch(lines[1] ?? "", /warning relay: frame refused: TypeError: bad\n$/);
});

Deno.test("log: a peer's text cannot forge lines or move the cursor", () => {
  const lines = logged({ format: "human", level: "info" }, false, () => {
    relay.info("host {host}", { host: "a\nerror relay: forged\x1b[2J", more: "b\n\x1b[31mc" });
  });
  assertEquals(lines.length, 1);
  // deno-lint-ignore no-control-regex -- control characters are what must not be there
  assertMatch(lines[0] ?? "", /^[^\x00-\x1f\x7f]*\n$/);
});

Deno.test("log: JSON lines carry properties as fields", () => {
  const lines = logged({ format: "json", level: "trace" }, true, () => {
    relay.error("rank {rank}: {error}", { rank: 3, error: new Error("gone"), bytes: 5n });
  });
  const record = JSON.parse(lines[0] ?? "");
  assertEquals(record.message, "rank 3: Error: gone");
  assertEquals(record.level, "ERROR");
  assertEquals(record.logger, "tierfold.relay");
  assertEquals(record.properties, { rank: 3, error: "Error: gone", bytes: "5" });
  assert(lines[0]?.endsWith("}\n"));
});

Deno.test("log: colours only where they are wanted", () => {
  const body = () => relay.info("x");
  const line = (color: boolean) => logged({ format: "human", level: "info" }, color, body)[0] ?? "";
  assert(line(true).includes("\x1b["));
  assert(!line(false).includes("\x1b["));
});

Deno.test("log: starts once, and again after it was disposed", () => {
  const options = { format: "human", level: "info" } as const;
  {
    using _logging = startLogging(options);
    assertThrows(() => startLogging(options), Error, "logging is on already");
  }
  assertEquals(logged(options, false, () => relay.info("x")).length, 1);
});
