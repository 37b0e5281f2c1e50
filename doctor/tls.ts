/**
 * Looks at the files of TLS: do they belong together, and for how long.
 *
 * @module
 */
import { X509Certificate } from "node:crypto";
import { UsageError } from "../cli/spec.ts";
import type { TlsIdentity } from "../transport/tls_identity.ts";
import { amiss, type Finding, ok } from "./finding.ts";

const CHECK = "tls";
const DAY_MS = 86_400_000;
/** Time enough to have a certificate renewed, in days. */
const SOON_DAYS = 14;

/** What was found, and the identity where there is a good one. */
export interface TlsFindings {
  readonly identity: TlsIdentity | undefined;
  /** None when TLS is not asked for. */
  readonly finding: readonly Finding[];
}

/**
 * Reads the files as relay and controller do.
 *
 * @param read Gives the identity, or undefined where none was asked for.
 */
export function checkTls(
  read: () => TlsIdentity | undefined,
  now: number = Date.now(),
): TlsFindings {
  let identity: TlsIdentity | undefined;
  try {
    identity = read();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    const advice = "docs/operations.md, TLS, has the commands that make these files";
    return { identity, finding: [amiss(CHECK, "problem", error.message, advice)] };
  }
  if (identity === undefined) return { identity, finding: [] };
  const ends = Math.min(
    ...[identity.cert, identity.ca].map((pem) => Date.parse(new X509Certificate(pem).validTo)),
  );
  const days = Math.floor((ends - now) / DAY_MS);
  const found = `certificate, key and CA belong together, for ${days} more days`;
  const finding = days < SOON_DAYS
    ? amiss(
      CHECK,
      "warning",
      found,
      "make new ones, and start relays and controller again with them",
    )
    : ok(CHECK, found);
  return { identity, finding: [finding] };
}
