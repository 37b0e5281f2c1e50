/**
 * Connections of strangers: bytes that mean nothing, or only at first.
 *
 * @module
 */
import { encodeHandshake } from "../../wire/handshake.ts";
import { encodeChannelMagic, encodeRecordStart, RECORD_HEADER_BYTES } from "../../wire/mux.ts";
import type { Dice } from "./dice.ts";
import { WORLD } from "./values.ts";

/** How long a stranger stays at most, in milliseconds. */
const STAY_MS = 1_000;

/** Bytes of a stranger: of every kind of nonsense one. */
function nonsense(dice: Dice): Uint8Array {
  const noise = Uint8Array.from({ length: dice.upTo(2_000) }, () => dice.upTo(256));
  const rank = encodeHandshake({ version: 2, rank: dice.upTo(WORLD), worldSize: WORLD });
  const start = new Uint8Array(RECORD_HEADER_BYTES);
  const kinds: (() => Uint8Array)[] = [
    () => noise,
    () => new TextEncoder().encode("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    () => rank.subarray(0, dice.upTo(rank.length)),
    // A rank whose place is taken, or who goes on with noise and a length that never comes.
    () => Uint8Array.from([...rank, ...noise]),
    () => Uint8Array.from([...rank, 0xff, 0xff, 0xff, 0x3f, ...noise]),
    () => Uint8Array.from([...encodeChannelMagic(), ...noise]),
    () => {
      encodeRecordStart(start, { kind: "host_frame", rank: 0, length: 0x3fff_ffff });
      return Uint8Array.from([...encodeChannelMagic(), ...start, ...noise]);
    },
    () => new Uint8Array(0),
  ];
  return kinds[dice.upTo(kinds.length)]!();
}

/**
 * Lets some strangers in by each door, all at once.
 *
 * @param doors HOST:PORT of each.
 * @returns How many there were.
 */
export async function garbage(
  doors: readonly string[],
  each: number,
  dice: Dice,
): Promise<number> {
  const visits = doors.flatMap((door) =>
    Array.from({ length: each }, () => ({ door, bytes: nonsense(dice) }))
  );
  await Promise.all(visits.map(({ door, bytes }) => visit(door, bytes)));
  return visits.length;
}

async function visit(door: string, bytes: Uint8Array): Promise<void> {
  const [hostname, port] = door.split(":");
  let conn: Deno.TcpConn;
  try {
    conn = await Deno.connect({ hostname: hostname!, port: Number(port) });
  } catch {
    // The server is being started again.
    return;
  }
  const timer = setTimeout(() => shut(conn), STAY_MS);
  try {
    let rest = Uint8Array.from(bytes);
    while (rest.length > 0) rest = rest.subarray(await conn.write(rest));
    const chunk = new Uint8Array(1024);
    while (await conn.read(chunk) !== null) { /* why it is refused interests no stranger */ }
  } catch {
    // Reset, as it should be, or its time is over.
  } finally {
    clearTimeout(timer);
    shut(conn);
  }
}

function shut(conn: Deno.TcpConn): void {
  try {
    conn.close();
  } catch {
    // It was closed before.
  }
}
