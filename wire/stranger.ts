/**
 * What first bytes that are not ours mean: usually somebody has the address of another port.
 *
 * @module
 */

/** The first 4 bytes of what may come, as the little-endian u32 that a magic is, and whose they are. */
const OPENINGS: readonly (readonly [magic: number, mask: number, whose: string])[] = [
  [0xf10d17c0, ~0, "a rank's handshake: ranks connect to the relay of their host"],
  [0xf10d17e1, ~0, "a relay's channel: relays connect to the controller"],
  ...["GET ", "HEAD", "POST", "PUT "].map((verb) =>
    [text(verb), ~0, "an HTTP request: pages are where --http listens"] as const
  ),
  [text("HTTP"), ~0, "an HTTP answer: it is an HTTP server that listens there"],
  // A record of a handshake, of version 3.x.
  [0x0316, 0xffff, "TLS, which is not spoken on this port"],
  [text("SSH-"), ~0, "SSH: it is an SSH server that listens there"],
];

function text(start: string): number {
  return [...start].reduceRight((all, letter) => all << 8 | letter.charCodeAt(0), 0);
}

/**
 * What stands behind an error about a magic.
 *
 * @param magic The 4 bytes that came, little-endian.
 * @returns Where they usually come from, ready to follow the error; empty when nobody knows.
 */
export function strangerHint(magic: number): string {
  const found = OPENINGS.find(([known, mask]) => ((magic ^ known) & mask) === 0);
  return found === undefined ? "" : `; these bytes begin ${found[2]}`;
}
