/**
 * Temporary folders that go away with the process, however it ends short of being killed.
 *
 * @module
 */

const folders = new Set<string>();

globalThis.addEventListener("unload", () => {
  for (const folder of folders) removeScratch(folder);
});

/** Makes a temporary folder. */
export function makeScratch(what: string): string {
  const folder = Deno.makeTempDirSync({ prefix: `tierfold-bench-${what}-` });
  folders.add(folder);
  return folder;
}

/** Removes it before the process ends. */
export function removeScratch(folder: string): void {
  folders.delete(folder);
  try {
    Deno.removeSync(folder, { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
