/**
 * Places to connect to and to listen at.
 *
 * @module
 */

/** A host name or address, and a port. */
export interface Address {
  /** A name or an address, IPv6 without brackets. */
  hostname: string;
  /** From 0 to 65535. */
  port: number;
}

/**
 * `HOST:PORT`, an IPv6 address in brackets.
 *
 * ```ts
 * import { assertEquals } from "@std/assert";
 * import { formatAddress } from "@tierfold/tierfold";
 *
 * assertEquals(formatAddress({ hostname: "::1", port: 7070 }), "[::1]:7070");
 * ```
 */
export function formatAddress({ hostname, port }: Address): string {
  return hostname.includes(":") ? `[${hostname}]:${port}` : `${hostname}:${port}`;
}
