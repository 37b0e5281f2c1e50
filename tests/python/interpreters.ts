// The Python interpreters of this machine, and what they can import. The one on the PATH may be another
// than the one that the system's packages belong to.

/** One interpreter. */
export interface Interpreter {
  readonly path: string;
  /** Of numpy; undefined where there is none. */
  readonly numpy: string | undefined;
  /** Of torch; undefined where there is none. */
  readonly torch: string | undefined;
}

const CANDIDATES = ["python3", "/usr/bin/python3"];

const PROBE = `
import importlib.util, json, sys
found = lambda name: importlib.util.find_spec(name) and getattr(__import__(name), "__version__")
print(json.dumps([sys.executable, sys.version_info >= (3, 9), found("numpy"), found("torch")]))
`;

async function probe(command: string): Promise<Interpreter | undefined> {
  try {
    const { success, stdout } = await new Deno.Command(command, {
      args: ["-c", PROBE],
      stdout: "piped",
      stderr: "null",
    }).output();
    if (!success) return undefined;
    const [path, recent, numpy, torch] = JSON.parse(new TextDecoder().decode(stdout));
    return recent ? { path, numpy: numpy ?? undefined, torch: torch ?? undefined } : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

const all = (await Promise.all(CANDIDATES.map(probe)))
  .filter((found): found is Interpreter => found !== undefined)
  .filter(({ path }, i, list) => list.findIndex((other) => other.path === path) === i);

/** Every interpreter with numpy. */
export const withNumpy: readonly Interpreter[] = all.filter(({ numpy }) => numpy !== undefined);

/** The first interpreter with numpy. */
export const numpy: Interpreter | undefined = withNumpy[0];

/** The first interpreter with numpy and torch. */
export const torch: Interpreter | undefined = withNumpy.find(({ torch }) => torch !== undefined);

/** Where the client's package lies. */
export const CLIENT = new URL("../../clients/python/", import.meta.url).pathname;

/** The environment in which an interpreter finds the client and writes nothing next to it. */
export const PYTHON_ENV = { PYTHONPATH: CLIENT, PYTHONDONTWRITEBYTECODE: "1" };

const LACKING = {
  numpy: "no Python 3.9 or later with numpy: python3-numpy is not installed",
  torch: "no Python 3.9 or later with torch: python3-torch is not installed",
};

/** A test that needs an interpreter: skipped by name where there is none. */
export function pythonTest(
  name: string,
  needs: "numpy" | "torch",
  body: (python: Interpreter) => Promise<void>,
): void {
  const python = needs === "torch" ? torch : numpy;
  if (python === undefined) {
    Deno.test({ name: `${name} (skipped: ${LACKING[needs]})`, ignore: true, fn: () => {} });
  } else Deno.test(name, () => body(python));
}
