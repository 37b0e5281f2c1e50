/**
 * HOST:PORT as the command lines write it.
 *
 * @module
 */

/**
 * Splits HOST:PORT; an IPv6 host stands in brackets.
 *
 * @throws {RangeError} When the text is no such address.
 */
export function splitAddress(address: string): { hostname: string; port: number } {
  const match = /^\[?([^\]]+?)\]?:(\d+)$/.exec(address);
  const port = Number(match?.[2]);
  if (match === null || port > 65_535) {
    throw new RangeError(`reading an address: "${address}" is not HOST:PORT`);
  }
  return { hostname: match[1] as string, port };
}
