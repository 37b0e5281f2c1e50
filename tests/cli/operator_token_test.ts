// Where the operator's token comes from.
import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { readOperatorToken } from "../../cli/operator_token.ts";
import { UsageError } from "../../cli/spec.ts";

const TOKEN = "0123456789abcdef._~+/=-";
const env = (token?: string) => (name: string) =>
  name === "TIERFOLD_OPERATOR_TOKEN" ? token : undefined;

Deno.test("operator token: none, from the environment, from a file", async () => {
  assertEquals(readOperatorToken(undefined, env()), undefined);
  assertEquals(readOperatorToken(undefined, env(TOKEN)), TOKEN);
  const file = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(file, `${TOKEN}\n`);
    assertEquals(readOperatorToken(file, env()), TOKEN);
    const both = assertThrows(() => readOperatorToken(file, env(TOKEN)), UsageError);
    assertStringIncludes((both as Error).message, "both set");
    await Deno.writeTextFile(file, "x".repeat(5_000));
    assertThrows(() => readOperatorToken(file, env()), UsageError, "a file of 5000 bytes");
  } finally {
    await Deno.remove(file);
  }
  assertThrows(() => readOperatorToken("/no/such/file", env()), UsageError, "cannot be read");
});

Deno.test("operator token: one that can be guessed or cannot be sent is refused, unrepeated", () => {
  for (const token of ["", "short", "a token with spaces", "sécrètsécrètsécrèt", "x".repeat(513)]) {
    const error = assertThrows(() => readOperatorToken(undefined, env(token)), UsageError) as Error;
    assertStringIncludes(error.message, "TIERFOLD_OPERATOR_TOKEN");
    assert(token === "" || !error.message.includes(token), error.message);
  }
});
