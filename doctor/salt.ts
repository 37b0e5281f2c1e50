/**
 * Looks at the session salt: is there one, could it be guessed, who else can read it.
 *
 * @module
 */
import { readSalt, type SaltSources } from "../cli/salt.ts";
import { UsageError } from "../cli/spec.ts";
import { amiss, type Finding, ok } from "./finding.ts";

const CHECK = "salt";
const MAKE_ONE = "make one for all hosts: openssl rand -hex 16 > salt && chmod 600 salt";

/** What was found, and the salt where there is one; it is in no finding. */
export interface SaltFindings {
  readonly findings: readonly Finding[];
  readonly salt: Uint8Array<ArrayBuffer> | undefined;
}

/** Reads the salt as relay and controller do. */
export function checkSalt(sources: SaltSources): SaltFindings {
  let salt: Uint8Array<ArrayBuffer>;
  try {
    salt = readSalt(sources);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { salt: undefined, findings: [amiss(CHECK, "problem", error.message, MAKE_ONE)] };
  }
  const { saltFile } = sources;
  const from = saltFile === undefined ? "the environment" : `file ${saltFile}`;
  const findings = [ok(CHECK, `16 bytes from ${from}, without a pattern`)];
  if (saltFile !== undefined) findings.push(...permissions(saltFile));
  return { salt, findings };
}

function permissions(path: string): Finding[] {
  const check = "salt file";
  // Windows has no such bits.
  const { mode } = Deno.statSync(path);
  if (mode === null) return [];
  const bits = (mode & 0o777).toString(8).padStart(3, "0");
  if ((mode & 0o077) === 0) return [ok(check, `${path} has mode ${bits}: its owner's alone`)];
  const who = (mode & 0o007) === 0 ? "its group" : "every user of this host";
  const more = (mode & 0o022) === 0 ? "can read" : "can change";
  return [
    amiss(check, "problem", `${path} has mode ${bits}: ${who} ${more} it`, `chmod 600 ${path}`),
  ];
}
