// The curl example of docs/federated.md, run as it stands.
import { assert, assertEquals } from "@std/assert";
import { decodeGarw } from "../../wire/garw.ts";
import { vectorBytes } from "../vectors.ts";
import { freePort } from "../delta/sockets.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** Whether the shell finds all programs of the example. */
async function hasPrograms(): Promise<boolean> {
  try {
    const args = ["-c", "command -v curl && command -v openssl"];
    return (await new Deno.Command("bash", { args }).output()).success;
  } catch {
    return false;
  }
}

const able = await hasPrograms();

Deno.test({
  name: "the curl example of docs/federated.md works" +
    (able ? "" : " (skipped: no bash, curl or openssl)"),
  ignore: !able,
  fn: curlExample,
});

async function curlExample(): Promise<void> {
  const text = await Deno.readTextFile(`${ROOT}docs/federated.md`);
  const script = /```sh\n([\s\S]*?)```/.exec(text)![1]!;
  const directory = await Deno.makeTempDir();
  try {
    // In a copy of nothing but what the example names, so that it leaves no files in the repository.
    for (const name of (await Array.fromAsync(Deno.readDir(ROOT))).map(({ name }) => name)) {
      if (name !== ".git") await Deno.symlink(`${ROOT}${name}`, `${directory}/${name}`);
    }
    const port = freePort();
    const { code, stdout, stderr } = await new Deno.Command("bash", {
      args: ["-euc", `${script.replaceAll("7080", String(port))}\nkill %1\nwait %1 || true\n`],
      cwd: directory,
      env: { PATH: `${Deno.execPath().replace(/\/[^/]+$/, "")}:${Deno.env.get("PATH")}` },
    }).output();
    const output = new TextDecoder().decode(stdout);
    assertEquals(code, 0, output + new TextDecoder().decode(stderr));
    const [started, accepted, pass] = output.trim().split("\n").map((line) => JSON.parse(line));
    assertEquals(started.state, { kind: "Pending" });
    assertEquals([accepted.cid, accepted.repeated], ["grad-21592fd5d9c6a13f", false]);
    assertEquals([pass.state.kind, pass.num_samples], ["Complete", 50]);
    const result = decodeGarw(await Deno.readFile(`${directory}/result.garw`));
    const { values } = decodeGarw(vectorBytes("garw_1.bin"));
    assertEquals(result.numSamples, 50);
    assert(result.values.every((v, i) => Math.abs(v - values[i]!) <= 1e-6 * Math.abs(values[i]!)));
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
}
