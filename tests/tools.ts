// Programs that a test may need and a machine may lack.

/** Whether a program stands on the PATH. */
export function installed(program: string): boolean {
  return (Deno.env.get("PATH") ?? "").split(":").some((folder) => {
    try {
      return Deno.statSync(`${folder}/${program}`).isFile;
    } catch {
      return false;
    }
  });
}

/** Registers a test that is skipped by name where one of the programs is absent. */
export function testWith(
  programs: readonly string[],
  name: string,
  fn: (t: Deno.TestContext) => Promise<void> | void,
): void {
  const absent = programs.filter((program) => !installed(program));
  const why = absent.length === 0 ? "" : ` (skipped: ${absent.join(", ")} is not installed)`;
  Deno.test({ name: name + why, ignore: absent.length > 0, fn });
}
