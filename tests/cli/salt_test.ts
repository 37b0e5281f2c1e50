import { assert, assertEquals, assertThrows } from "@std/assert";
import { readSalt, type SaltSources } from "../../cli/salt.ts";
import { UsageError } from "../../cli/spec.ts";

const A = "9d1c4be07a52f8360ee5b3476d91c82f";
const B = "FFE1DDC3BBA49981776B554E33271105";

const saltFile = (content: string) => {
  const path = Deno.makeTempFileSync();
  Deno.writeTextFileSync(path, content);
  return { path, [Symbol.dispose]: () => Deno.removeSync(path) };
};
const unset = () => undefined;

Deno.test("salt: flag's file, then variable, then another source's file", () => {
  using file = saltFile(`${B}\n`);
  const withFile = (saltFileSource: SaltSources["saltFileSource"], env: string | undefined) =>
    readSalt({ env: () => env, saltFile: file.path, saltFileSource }).toHex().toUpperCase();
  assertEquals(withFile("flag", A), B);
  assertEquals(withFile("config file", A), A.toUpperCase());
  assertEquals(withFile("config file", undefined), B);
  assertEquals(withFile("environment", undefined), B);
  assertThrows(() => withFile("environment", A), UsageError, "both set");
  assertEquals(readSalt({ env: () => A }), Uint8Array.fromHex(A));
});

Deno.test("salt: a wrong or missing one is refused, and not repeated", () => {
  for (const wrong of [A.slice(1), `${A}0`, `${A.slice(1)}g`, "", `0x${A.slice(2)}`]) {
    const fromVariable = assertThrows(() => readSalt({ env: () => wrong }), UsageError) as Error;
    using file = saltFile(wrong);
    const sources = { env: unset, saltFile: file.path, saltFileSource: "flag" } as const;
    const fromFile = assertThrows(() => readSalt(sources), UsageError, file.path) as Error;
    for (const { message } of [fromVariable, fromFile]) {
      assert(message.includes("32 hex digits"), message);
      assert(wrong === "" || !message.includes(wrong), message);
    }
  }
  const guessed = assertThrows(() => readSalt({ env: () => "0a".repeat(16) }), UsageError) as Error;
  assert(guessed.message.includes("could be guessed: its bytes count or repeat"), guessed.message);
  assert(guessed.message.includes("openssl rand -hex 16"), guessed.message);
  assertThrows(() => readSalt({ env: unset }), UsageError, "the session salt is missing");
  const absent = { env: unset, saltFile: "no/such/salt", saltFileSource: "flag" } as const;
  assertThrows(() => readSalt(absent), UsageError, "salt file no/such/salt: cannot be read");
  using large = saltFile("0".repeat(5000));
  const tooLarge = { env: unset, saltFile: large.path, saltFileSource: "flag" } as const;
  assertThrows(() => readSalt(tooLarge), UsageError, "a file of 5000 bytes");
});
