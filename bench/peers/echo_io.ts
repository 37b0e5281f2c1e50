/**
 * Plain reads and writes of the ceiling's processes: on purpose nothing but Deno's own calls.
 *
 * @module
 */

/** The most that one read or write call moves, in bytes; larger calls were not faster on loopback. */
const CALL_BYTES = 1024 * 1024;

/** Fills `into`; false when the peer closed before its first byte. */
export async function readExactly(connection: Deno.Conn, into: Uint8Array): Promise<boolean> {
  for (let at = 0; at < into.length;) {
    const count = await connection.read(into.subarray(at, at + CALL_BYTES));
    if (count === null) {
      if (at === 0) return false;
      throw new Error(`echo: the peer closed after ${at} of ${into.length} bytes`);
    }
    at += count;
  }
  return true;
}

/** Writes all of `from`. */
export async function writeFully(connection: Deno.Conn, from: Uint8Array): Promise<void> {
  for (let at = 0; at < from.length;) {
    at += await connection.write(from.subarray(at, at + CALL_BYTES));
  }
}
