import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseControllerOptions } from "../../cli/controller_options.ts";
import { parseRelayOptions } from "../../cli/relay_options.ts";
import { UsageError } from "../../cli/spec.ts";
import { checkIdentity } from "../../transport/tls_identity.ts";
import { tlsTest } from "../transport/certificates.ts";

const env = (name: string) =>
  name === "TIERFOLD_SALT" ? "8f14e45fceea167a5a36dedd4bea2543" : undefined;
const controller = (args: string) =>
  parseControllerOptions(["--world-size", "2", ...args.split(" ")], env);
const relay = (args: string) =>
  parseRelayOptions(
    ["--host", "a", "--ranks", "0", "--world-size", "2", "--controller", "a:1", ...args.split(" ")],
    env,
  );

function refused(run: () => unknown, ...texts: string[]): string {
  const { message } = assertThrows(run, UsageError) as UsageError;
  for (const text of texts) assert(message.includes(text), `"${message}" has no "${text}"`);
  return message;
}

Deno.test("security options: only loopback is listened on in the clear, unless asked for", () => {
  for (const place of ["127.0.0.1:0", "127.8.7.6:9", "localhost:1", "[::1]:1"]) {
    controller(`--listen ${place} --http ${place}`);
    relay(`--listen ${place}`);
  }
  for (const place of ["0.0.0.0:0", "[::]:7", "10.0.0.1:7070", "root.example:1", "127.example:1"]) {
    refused(
      () => controller(`--listen ${place}`),
      `--listen ${place}`,
      "give --tls-cert, --tls-key and --tls-ca, or listen on 127.0.0.1",
      "add --allow-plain",
    );
    refused(() => controller(`--http ${place}`), `--http ${place}`, "add --allow-plain");
    refused(() => relay(`--listen ${place}`), `--listen ${place}`, "add --allow-plain");
    controller(`--listen ${place} --http ${place} --allow-plain`);
    relay(`--listen ${place} --allow-plain`);
  }
});

tlsTest("security options: with TLS the controller listens anywhere", async (files) => {
  await Promise.resolve();
  const { cert, key, ca } = files.files("controller");
  const tls = `--tls-cert ${cert} --tls-key ${key} --tls-ca ${ca}`;
  assertEquals(controller(`--listen 0.0.0.0:0 ${tls}`).tls, files.identity("controller"));
  refused(() => controller(`--http 0.0.0.0:0 ${tls}`), "--http 0.0.0.0:0");
  // Its ranks do not speak TLS.
  refused(() => relay(`--listen 0.0.0.0:0 ${tls}`), "--listen 0.0.0.0:0");
  refused(() => controller(`--tls-cert ${cert} --tls-ca ${ca}`), "go together: give all three");
  refused(
    () => controller(`--tls-cert ${cert} --tls-key ${key}x --tls-ca ${ca}`),
    `--tls-key ${key}x: cannot be read: there is no such file`,
  );
  const wrong = files.files("relay").key;
  const message = refused(
    () => controller(`--tls-cert ${cert} --tls-key ${wrong} --tls-ca ${ca}`),
    "the key does not belong to the certificate",
  );
  assert(!message.includes("PRIVATE"), message);
});

tlsTest(
  "security options: the commands in docs/operations.md make certificates that fit",
  async () => {
    const page = await Deno.readTextFile(new URL("../../docs/operations.md", import.meta.url));
    const commands = page.split("\n").filter((line) => line.startsWith("    openssl req"));
    assertEquals(commands.length, 3);
    const folder = await Deno.makeTempDir();
    try {
      for (const command of commands) {
        const { success, stderr } = await new Deno.Command("sh", {
          args: ["-c", command],
          cwd: folder,
        }).output();
        assert(success, new TextDecoder().decode(stderr));
      }
      const read = (name: string) => Deno.readTextFileSync(`${folder}/${name}`);
      for (const name of ["controller", "relay"]) {
        const identity = {
          cert: read(`${name}.crt`),
          key: read(`${name}.key`),
          ca: read("ca.crt"),
        };
        checkIdentity(identity, new Date());
      }
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  },
);
