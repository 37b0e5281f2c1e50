/**
 * The version, from the one place where it stands.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };

/** This build's semantic version. */
export const VERSION: string = manifest.version;

/** Its licence, as SPDX writes it. */
export const LICENSE: string = manifest.license;

/** What `git archive` makes a commit's hash of, since .gitattributes asks for it; else it stays as it is. */
const ARCHIVED = "$Format:%H$";

/**
 * The commit that this build was made of, 40 or 64 hex digits; undefined in a working tree, whose files
 * may differ from every commit.
 */
export const COMMIT: string | undefined = /^[0-9a-f]{40,64}$/.test(ARCHIVED) ? ARCHIVED : undefined;

/** The line that --version prints. */
export function versionLine(name: string): string {
  const commit = COMMIT ?? "unknown (a working tree; git describe --always --dirty names it)";
  return `${name} ${VERSION}, commit ${commit}, licence ${LICENSE}\n`;
}
