// The systemd units, by systemd's own checks, and their options by the programs'.
import { assert, assertEquals, assertMatch } from "@std/assert";
import { parseControllerOptions } from "../../cli/controller_options.ts";
import { parseRelayOptions } from "../../cli/relay_options.ts";
import { output } from "../../scripts/command.ts";
import { testWith } from "../tools.ts";
import { tlsTest } from "../transport/certificates.ts";

const units = new URL("../../deploy/systemd/", import.meta.url).pathname;

/** Most that `systemd-analyze security` may say, of 10. */
const MOST_EXPOSED = 1.4;

/** What the units lean on, so that they can be checked without a running system. */
const TARGETS = ["sysinit", "basic", "shutdown", "network-online", "multi-user"];

async function withRoot(body: (root: string) => Promise<void>): Promise<void> {
  const root = await Deno.makeTempDir();
  try {
    const system = `${root}/etc/systemd/system`;
    await Deno.mkdir(system, { recursive: true });
    await Deno.mkdir(`${root}/usr/local/bin`, { recursive: true });
    for (const target of TARGETS) {
      await Deno.writeTextFile(`${system}/${target}.target`, "[Unit]\nDescription=A target\n");
    }
    for (const name of ["tierfold-controller", "tierfold-relay"]) {
      await Deno.copyFile(`${units}${name}.service`, `${system}/${name}.service`);
      await Deno.writeTextFile(`${root}/usr/local/bin/${name}`, "", { mode: 0o755 });
    }
    await body(root);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

for (const name of ["tierfold-controller", "tierfold-relay"]) {
  testWith(
    ["systemd-analyze"],
    `systemd: ${name}.service is a unit`,
    () =>
      withRoot(async (root) => {
        const args = ["verify", `--root=${root}`, `${name}.service`];
        const { code, stderr } = await new Deno.Command("systemd-analyze", { args }).output();
        // What it does not understand it only says.
        assertEquals([new TextDecoder().decode(stderr), code], ["", 0]);
      }),
  );

  testWith(
    ["systemd-analyze"],
    `systemd: ${name}.service is shut in`,
    () =>
      withRoot(async (root) => {
        const page = await output([
          ...["systemd-analyze", "security", "--offline=true", "--no-pager", `--root=${root}`],
          `${name}.service`,
        ], root);
        const exposure = Number(/Overall exposure level .*: ([\d.]+)/.exec(page)?.[1]);
        assert(exposure <= MOST_EXPOSED, `${exposure} of 10:\n${page}`);
      }),
  );
}

/** The values of one key of a unit. */
function all(unit: string, key: string): string[] {
  return [...unit.matchAll(new RegExp(`^${key}=(.*)$`, "gm"))].map(([, value]) => value!);
}

/** A file of variables, as EnvironmentFile reads it. */
async function variables(path: string): Promise<Map<string, string>> {
  const lines = (await Deno.readTextFile(path)).split("\n").filter((line) => /^[A-Z]/.test(line));
  return new Map(lines.map((line) => [
    line.slice(0, line.indexOf("=")),
    line.slice(line.indexOf("=") + 1),
  ]));
}

tlsTest(
  "systemd: the units' options and the example environments fit the programs",
  async (tls) => {
    const folder = await Deno.makeTempDir();
    try {
      const { cert, key, ca } = tls.files("controller");
      await Deno.copyFile(cert, `${folder}/tls.crt`);
      await Deno.copyFile(key, `${folder}/tls.key`);
      await Deno.copyFile(ca, `${folder}/ca.crt`);
      await Deno.writeTextFile(`${folder}/salt`, "8f3ab7e6c1a04d52967e0b1f2c3d4e5a\n");
      const options = async (name: string) => {
        const unit = (await Deno.readTextFile(`${units}tierfold-${name}.service`))
          .replaceAll(/\\\n\s*/g, "");
        const env = await variables(`${units}${name}.env`);
        assert(![...env.keys()].some((key) => /SALT|KEY/.test(key)), "a secret in the environment");
        assertEquals(all(unit, "EnvironmentFile"), [`/etc/tierfold/${name}.env`]);
        const [command = ""] = all(unit, "ExecStart");
        assert(command.startsWith(`/usr/local/bin/tierfold-${name} `), command);
        // What systemd puts there: credentials, state, the host's name.
        const args = command.replaceAll("%d", folder).replaceAll("%S", folder).replaceAll(
          "%l",
          "a",
        );
        return { args: args.split(" ").slice(1), env: (key: string) => env.get(key) };
      };
      const controller = await options("controller");
      const { kept, worldSize, salt } = parseControllerOptions(controller.args, controller.env);
      assertEquals([worldSize, kept?.resume, salt.length], [8, true, 16]);
      const relay = await options("relay");
      const { ranks, host } = parseRelayOptions(relay.args, relay.env);
      assertEquals([ranks, host], [[0, 1, 2, 3], "a"]);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);

Deno.test("systemd: what must not be forgotten", async () => {
  for (const name of ["controller", "relay"]) {
    const unit = await Deno.readTextFile(`${units}tierfold-${name}.service`);
    assertEquals(
      all(unit, "LoadCredential"),
      ["salt", "tls.crt", "tls.key", "ca.crt"].map((file) => `${file}:/etc/tierfold/${file}`),
    );
    assertEquals(all(unit, "RestartPreventExitStatus"), ["2"]);
    assertEquals(all(unit, "SuccessExitStatus"), ["143"]);
    // V8 writes machine code.
    assertEquals(all(unit, "MemoryDenyWriteExecute"), []);
    assertMatch(unit, /^DynamicUser=yes$/m);
  }
});
