/**
 * Reading the environment without asking anybody for permission.
 *
 * @module
 */

/**
 * Reads an environment variable, undefined where it is not set or not permitted: asking first keeps Deno
 * from prompting for it.
 */
export function readEnvironment(name: string): string | undefined {
  const permission = Deno.permissions.querySync({ name: "env", variable: name });
  return permission.state === "granted" ? Deno.env.get(name) : undefined;
}
