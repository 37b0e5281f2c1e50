/**
 * The ledger: what happened in a training's sessions, in an SQLite file that can be read while it grows.
 *
 *     sessions       one a start of the controller: when, how large, what it resumed from, how it ended
 *     rounds         kind, mass, duration; for Model rounds the step and the SHA-256 of the result's values
 *     contributions  by round: each host whose frame was accepted, its ranks and its mass
 *     exits          ranks that left or were lost, with the reason
 *     checkpoints    file, size and SHA-256 of each that the disk has
 *
 * Times are milliseconds since 1970, durations milliseconds. Rows are written together, a little later
 * than things happen: rounds do not wait for the disk. Killing the process loses at most the rows of the
 * last moments; the machine's own end, with `synchronous` NORMAL, also those that the disk had not taken
 * yet. Neither damages the file.
 *
 * @module
 */
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { getLogger } from "@logtape/logtape";

/** "TFld", by which the file is known as ours. */
const APPLICATION_ID = 0x54466c64;
const VERSION = 1;

/** How long rows may wait, in milliseconds. */
const DELAY_MS = 200;
/** Rows that are not left to wait for more. */
const BATCH_ROWS = 500;
/** Rows kept while the file cannot be written; then the oldest are dropped. */
const MAX_ROWS = 20_000;
/** How long a write waits for another process, in milliseconds: the loop stands still meanwhile. */
const BUSY_MS = 100;
/** When to try again after a write that failed, in milliseconds. */
const RETRY_MS = 2_000;

const SCHEMA = `
  CREATE TABLE sessions (
    id INTEGER PRIMARY KEY, started_at INTEGER NOT NULL, ended_at INTEGER,
    world_size INTEGER NOT NULL, outer TEXT NOT NULL, resumed_step INTEGER, ending TEXT
  ) STRICT;
  CREATE TABLE rounds (
    session INTEGER NOT NULL REFERENCES sessions, round INTEGER NOT NULL, closed_at INTEGER NOT NULL,
    kind TEXT NOT NULL, mass REAL NOT NULL, duration_ms REAL NOT NULL, step INTEGER, sha256 TEXT,
    PRIMARY KEY (session, round)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE contributions (
    session INTEGER NOT NULL, round INTEGER NOT NULL, host_key INTEGER NOT NULL, host TEXT NOT NULL,
    ranks TEXT NOT NULL, mass REAL NOT NULL,
    PRIMARY KEY (session, round, host_key)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE exits (
    session INTEGER NOT NULL REFERENCES sessions, at INTEGER NOT NULL, round INTEGER NOT NULL,
    host TEXT, ranks TEXT NOT NULL, lost INTEGER NOT NULL, reason TEXT NOT NULL
  ) STRICT;
  CREATE TABLE checkpoints (
    session INTEGER NOT NULL REFERENCES sessions, step INTEGER NOT NULL, round INTEGER NOT NULL,
    written_at INTEGER NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (session, step)
  ) STRICT, WITHOUT ROWID;
`;

const INSERTS = {
  round: "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
  contribution: "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?)",
  exit: "INSERT INTO exits VALUES (?, ?, ?, ?, ?, ?, ?)",
  checkpoint: "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)",
} as const;

type Value = string | number | null;

interface Row {
  readonly table: keyof typeof INSERTS;
  readonly values: readonly Value[];
}

/** A ledger that cannot be opened. */
export class LedgerError extends Error {
  /** "LedgerError". */
  override readonly name = "LedgerError";
}

/** How a session begins. */
export interface SessionStart {
  readonly worldSize: number;
  /** The outer optimizer and its rates, as JSON. */
  readonly outer: string;
  /** The step it goes on from; undefined when it starts afresh. */
  readonly resumedStep: number | undefined;
}

/** A round that closed. */
export interface LedgerRound {
  readonly round: number;
  readonly kind: string;
  readonly mass: number;
  /** From its first frame to its signed result, in milliseconds. */
  readonly durationMs: number;
  /** The consensus' step after it; undefined when it did not change. */
  readonly step: number | undefined;
  /** SHA-256, hex, of the result's tensor data, tensor after tensor. */
  readonly sha256: string | undefined;
  readonly hosts: readonly LedgerHost[];
}

/** A host whose frame was accepted. */
export interface LedgerHost {
  /** By which hosts are ordered. */
  readonly key: number;
  readonly name: string;
  /** Ranks behind its frame, as `0-3,7`. */
  readonly ranks: string;
  readonly mass: number;
}

/** One session's ledger. Nothing here throws once it is open: what cannot be written is logged. */
export class Ledger {
  /** This session's number. */
  readonly session: number;
  readonly #db: DatabaseSync;
  readonly #inserts: Readonly<Record<Row["table"], StatementSync>>;
  readonly #log = getLogger(["tierfold", "controller", "state"]);
  #rows: Row[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failing = false;

  private constructor(db: DatabaseSync, start: SessionStart) {
    this.#db = db;
    const insert = db.prepare(
      "INSERT INTO sessions (started_at, world_size, outer, resumed_step) VALUES (?, ?, ?, ?)",
    );
    const { lastInsertRowid } = insert.run(
      Date.now(),
      start.worldSize,
      start.outer,
      start.resumedStep ?? null,
    );
    this.session = Number(lastInsertRowid);
    this.#inserts = {
      round: db.prepare(INSERTS.round),
      contribution: db.prepare(INSERTS.contribution),
      exit: db.prepare(INSERTS.exit),
      checkpoint: db.prepare(INSERTS.checkpoint),
    };
  }

  /**
   * Opens a ledger, which is made when it is not there, and begins a session in it.
   *
   * @throws {LedgerError} when the file is none of ours, of a later version, damaged, or not writable.
   */
  static open(path: string, start: SessionStart): Ledger {
    let db: DatabaseSync | undefined;
    try {
      db = new DatabaseSync(path, { timeout: BUSY_MS });
      prepare(db);
      return new Ledger(db, start);
    } catch (error) {
      db?.close();
      if (!(error instanceof Error)) throw error;
      throw new LedgerError(
        `opening the ledger ${path}: ${error.message}; move it away to start a new one`,
        { cause: error },
      );
    }
  }

  /** Takes down a round. */
  round(closed: LedgerRound): void {
    const { round, kind, mass, durationMs, step, sha256, hosts } = closed;
    const at = Date.now();
    this.#add("round", round, at, kind, mass, durationMs, step ?? null, sha256 ?? null);
    for (const { key, name, ranks, mass } of hosts) {
      this.#add("contribution", round, key, name, ranks, mass);
    }
  }

  /** Takes down ranks that are gone; `lost` when not of their own accord. */
  exit(
    exit: { round: number; host: string | undefined; ranks: string; lost: boolean; reason: string },
  ): void {
    const { round, host, ranks, lost, reason } = exit;
    this.#add("exit", Date.now(), round, host ?? null, ranks, lost ? 1 : 0, reason);
  }

  /** Takes down a checkpoint that the disk has, together with everything before it. */
  checkpoint(
    stored: { step: number; round: number; path: string; bytes: number; sha256: string },
  ): void {
    const { step, round, path, bytes, sha256 } = stored;
    this.#add("checkpoint", step, round, Date.now(), path, bytes, sha256);
    this.flush();
  }

  /** Writes what waits. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#rows.length === 0) return;
    try {
      this.#write();
      if (this.#failing) this.#log.info("the ledger can be written again");
      this.#failing = false;
    } catch (error) {
      this.#keep(error);
    }
  }

  /** Ends the session and closes the file. */
  close(ending: string): void {
    this.flush();
    clearTimeout(this.#timer);
    try {
      this.#db.prepare("UPDATE sessions SET ended_at = ?, ending = ? WHERE id = ?")
        .run(Date.now(), ending, this.session);
      this.#db.close();
    } catch (error) {
      this.#log.error("closing the ledger: {reason}", { reason: text(error) });
    }
    if (this.#rows.length > 0) {
      this.#log.error("{count} rows of the ledger were lost", { count: this.#rows.length });
    }
  }

  #add(table: Row["table"], ...values: Value[]): void {
    this.#rows.push({ table, values: [this.session, ...values] });
    if (this.#failing) return;
    if (this.#rows.length >= BATCH_ROWS) this.flush();
    else this.#timer ??= setTimeout(() => this.flush(), DELAY_MS);
  }

  #write(): void {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      for (const { table, values } of this.#rows) this.#inserts[table].run(...values);
      this.#db.exec("COMMIT");
    } catch (error) {
      // Some errors have ended the transaction already.
      if (this.#db.isTransaction) this.#db.exec("ROLLBACK");
      throw error;
    }
    this.#rows = [];
  }

  #keep(error: unknown): void {
    const dropped = Math.max(0, this.#rows.length - MAX_ROWS);
    if (dropped > 0) this.#rows.splice(0, dropped);
    if (!this.#failing || dropped > 0) {
      this.#log.error(
        "writing the ledger: {reason}; rounds go on, trying again in {ms} ms ({dropped} rows dropped)",
        { reason: text(error), ms: RETRY_MS, dropped },
      );
    }
    this.#failing = true;
    this.#timer = setTimeout(() => this.flush(), RETRY_MS);
  }
}

function prepare(db: DatabaseSync): void {
  const read = (pragma: string) => Object.values(db.prepare(`PRAGMA ${pragma}`).get() ?? {})[0];
  const id = read("application_id");
  const version = read("user_version");
  const tables = db.prepare("SELECT count(*) AS n FROM sqlite_schema").get()?.n;
  if (tables !== 0 && id !== APPLICATION_ID) throw new Error("it is another program's database");
  if (tables !== 0 && version !== VERSION) {
    throw new Error(`it has version ${version}, expected ${VERSION}`);
  }
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON");
  if (tables !== 0) return;
  db.exec(`BEGIN IMMEDIATE; ${SCHEMA}
    PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${VERSION}; COMMIT`);
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
