/**
 * What is sent with a seal behind it, and what must come with one.
 *
 * @module
 */
import type { Link } from "../transport/link.ts";
import { TransportError } from "../transport/connection.ts";
import { SEAL_BYTES, type Seals } from "../wire/seal.ts";

/** Up to so many bytes leave in one write with their seal. */
const ONE_WRITE_BYTES = 64 * 1024;

/**
 * Writes bytes and their seal, or the bytes alone where the connection is not sealed.
 *
 * @param what What is being written, for errors.
 * @throws {TransportError} when the connection breaks.
 */
export async function writeSealed(
  link: Link,
  bytes: Uint8Array,
  seal: Uint8Array | undefined,
  what: string,
): Promise<void> {
  if (seal === undefined) return await link.writeFully(bytes, what);
  if (bytes.length <= ONE_WRITE_BYTES) {
    const both = new Uint8Array(bytes.length + seal.length);
    both.set(bytes);
    both.set(seal, bytes.length);
    return await link.writeFully(both, what);
  }
  await link.writeFully(bytes, what);
  await link.writeFully(seal, what);
}

/**
 * Reads the seal of what has just come, where the connection is sealed.
 *
 * @param tag The own tag of what has come, or all of it.
 * @param what What has come, for errors.
 * @throws {WireError} when it is not the seal of what was due.
 * @throws {TransportError} when the stream ends or breaks.
 */
export async function readSeal(
  link: Link,
  seals: Seals | undefined,
  tag: Uint8Array,
  what: string,
): Promise<void> {
  if (seals === undefined) return;
  const seal = new Uint8Array(SEAL_BYTES);
  if (!await link.readFully(seal, `the seal of ${what}`)) {
    throw new TransportError(
      "closed",
      `reading the seal of ${what} from ${link.peer}: the stream ended before it`,
    );
  }
  seals.expect(tag, seal);
}
