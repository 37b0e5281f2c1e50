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
