// Runs the Python client's own tests, once per interpreter.
import { assert } from "@std/assert";
import { CLIENT, type Interpreter, pythonTest, withNumpy } from "./interpreters.ts";

async function run(path: string, args: readonly string[], cwd = CLIENT): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(path, {
    args: [...args],
    cwd,
    env: { PYTHONDONTWRITEBYTECODE: "1" },
  }).output();
  const text = new TextDecoder().decode(stdout) + new TextDecoder().decode(stderr);
  assert(success, text);
  return text;
}

const UNITTEST = ["-W", "error::ResourceWarning", "-m", "unittest", "-q"];

for (const { path, numpy, torch } of withNumpy) {
  const versions = `numpy ${numpy}, ${torch === undefined ? "no torch" : `torch ${torch}`}`;
  Deno.test(`python: the client's own tests with ${versions}`, async () => {
    const text = await run(path, UNITTEST);
    const count = Number(/Ran (\d+) tests/.exec(text)?.[1]);
    assert(count >= 40, text);
  });
}
if (withNumpy.length === 0) {
  pythonTest("python: the client's own tests", "numpy", () => Promise.resolve());
}

const CHECK = `
import ast, pathlib
files = list(pathlib.Path("tierfold").glob("*.py"))
assert len(files) > 8
for file in files:
    ast.parse(file.read_text(), str(file), feature_version=(3, 9))
`;

pythonTest("python: the client's source is that of Python 3.9", "numpy", async ({ path }) => {
  await run(path, ["-c", CHECK]);
});

const IMPORTED = `
import sys
import tierfold
assert "torch" not in sys.modules
`;

pythonTest("python: the client does not load torch by itself", "torch", async ({ path }) => {
  await run(path, ["-c", IMPORTED]);
});

const INSTALLED = `
import importlib.metadata, pathlib, sys
import tierfold
assert pathlib.Path(tierfold.__file__).is_relative_to(sys.argv[1]), tierfold.__file__
assert importlib.metadata.version("tierfold") == tierfold.__version__
assert (pathlib.Path(tierfold.__file__).parent / "py.typed").exists()
`;

/** What pip needs to build a package without fetching anything. */
async function canInstall(python: Interpreter): Promise<boolean> {
  const { success } = await new Deno.Command(python.path, {
    args: ["-c", "import setuptools, wheel, pip"],
    stdout: "null",
    stderr: "null",
  }).output();
  return success;
}

const installers = await Array.fromAsync(withNumpy, async (python) => ({
  python,
  able: await canInstall(python),
}));
const installer = installers.find(({ able }) => able)?.python;
const lacking = installer === undefined
  ? " (skipped: no Python with pip, setuptools and wheel: python3-pip is not installed)"
  : "";

Deno.test({
  name: `python: pip installs the client${lacking}`,
  ignore: installer === undefined,
  fn: async () => {
    const folder = await Deno.makeTempDir();
    try {
      // A build leaves files next to the source.
      await run("cp", ["-r", CLIENT, `${folder}/source`]);
      const pip = "-m pip install --quiet --no-build-isolation --no-deps --no-index " +
        "--disable-pip-version-check --root-user-action=ignore --target";
      await run(installer!.path, [...pip.split(" "), `${folder}/site`, `${folder}/source`], folder);
      await run(
        "env",
        [`PYTHONPATH=${folder}/site`, installer!.path, "-c", INSTALLED, folder],
        folder,
      );
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
});
