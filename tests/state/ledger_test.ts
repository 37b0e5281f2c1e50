import { assert, assertEquals, assertThrows } from "@std/assert";
import { DatabaseSync } from "node:sqlite";
import { startLogging } from "../../cli/log.ts";
import { Ledger, LedgerError, type LedgerRound } from "../../controller/state/ledger.ts";
import { pause } from "../cluster/waiting.ts";
import { TempDir } from "./dir.ts";

const START = { worldSize: 2, outer: "{}", resumedStep: undefined };

function closed(round: number): LedgerRound {
  return {
    round,
    kind: "model",
    mass: 2,
    durationMs: 1.5,
    step: round + 1,
    sha256: "ab",
    hosts: [{ key: 0, name: "a", ranks: "0-1", mass: 2 }],
  };
}

function count(path: string, table = "rounds"): number {
  using db = new DatabaseSync(path, { readOnly: true });
  return db.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.n as number;
}

Deno.test("ledger: rows are there a moment later, and at once with a checkpoint", async () => {
  using temp = new TempDir();
  const path = `${temp.path}/ledger.sqlite`;
  const ledger = Ledger.open(path, START);
  ledger.round(closed(0));
  assertEquals(count(path), 0);
  for (let tries = 0; count(path) === 0 && tries < 100; tries++) await pause(50);
  assertEquals([count(path), count(path, "contributions")], [1, 1]);
  ledger.round(closed(1));
  ledger.checkpoint({ step: 2, round: 1, path: "x", bytes: 3, sha256: "cd" });
  assertEquals([count(path), count(path, "checkpoints")], [2, 1]);
  for (let round = 2; round < 1_000; round++) ledger.round(closed(round));
  assert(count(path) > 500, "many rows wait for no timer");
  ledger.close("done");
  assertEquals(count(path), 1_000);
  const again = Ledger.open(path, { ...START, resumedStep: 2 });
  assertEquals(again.session, 2);
  again.close("done");
});

Deno.test("ledger: another program's file, another version, and what is no database are refused", () => {
  using temp = new TempDir();
  const path = (name: string) => `${temp.path}/${name}`;
  const open = (name: string) => () => Ledger.open(path(name), START);
  const refused = (name: string, text: string) => {
    const error = assertThrows(open(name), LedgerError, text) as LedgerError;
    assert(error.message.includes(`opening the ledger ${path(name)}`));
  };
  Deno.writeTextFileSync(path("text"), "no database ".repeat(100));
  refused("text", "not a database");
  {
    using db = new DatabaseSync(path("other"));
    db.exec("CREATE TABLE rounds (x)");
  }
  refused("other", "another program's database");
  open("later")().close("done");
  {
    using db = new DatabaseSync(path("later"));
    db.exec("PRAGMA user_version = 2");
  }
  refused("later", "it has version 2, expected 1");
  refused("no/such/folder", "unable to open");
});

Deno.test("ledger: while another process writes, rows wait and nothing throws", async () => {
  using temp = new TempDir();
  const lines: string[] = [];
  using _logging = startLogging({ format: "human", level: "info" }, {
    color: false,
    write: (line) => lines.push(line),
  });
  const path = `${temp.path}/ledger.sqlite`;
  const ledger = Ledger.open(path, START);
  {
    using other = new DatabaseSync(path);
    other.exec("BEGIN IMMEDIATE");
    ledger.round(closed(0));
    ledger.flush();
    ledger.round(closed(1));
    assert(lines.some((line) => line.includes("writing the ledger: database is locked")));
    assertEquals(count(path), 0);
    other.exec("ROLLBACK");
  }
  for (let tries = 0; count(path) < 2 && tries < 100; tries++) await pause(50);
  assertEquals(count(path), 2);
  assert(lines.some((line) => line.includes("the ledger can be written again")));
  ledger.close("done");
});

Deno.test("ledger: killed, it has every row that was flushed, and opens again", async () => {
  using temp = new TempDir();
  const path = `${temp.path}/ledger.sqlite`;
  const script = new URL("./ledger_writer.ts", import.meta.url);
  for (let kill = 1; kill <= 3; kill++) {
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", "--quiet", script.href, path],
      stdout: "piped",
    }).spawn();
    let flushed = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    for await (const text of child.stdout.pipeThrough(new TextDecoderStream())) {
      flushed = Number(text.trim().split("\n").at(-1));
      timer ??= setTimeout(() => child.kill("SIGKILL"), Math.random() * 60);
    }
    clearTimeout(timer);
    assertEquals((await child.status).signal, "SIGKILL");
    const ledger = Ledger.open(path, START);
    assertEquals(ledger.session, 2 * kill);
    ledger.close("checked");
    using db = new DatabaseSync(path, { readOnly: true });
    const rows = db.prepare("SELECT count(*) AS n FROM rounds WHERE session = ?")
      .get(2 * kill - 1)?.n as number;
    assert(rows >= flushed, `${rows} rows, ${flushed} were flushed`);
    assertEquals(db.prepare("PRAGMA integrity_check").get()?.integrity_check, "ok");
  }
});
