/**
 * Reading the environment without asking anybody for permission.
 *
 * @module
 */

import { env } from "node:process";

/**
 * Reads an environment variable, undefined where it is not set or not permitted: asking first keeps Deno
 * from prompting for it.
 */
export function readEnvironment(name: string): string | undefined {
  // A rank may run on Node.js.
  if (typeof Deno === "undefined") return env[name];
  const permission = Deno.permissions.querySync({ name: "env", variable: name });
  return permission.state === "granted" ? Deno.env.get(name) : undefined;
}
