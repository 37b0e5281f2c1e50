/**
 * The operator's token, read from where secrets may stand: the environment or a file.
 *
 * @module
 */
import { describe, type ReadEnvironment } from "./options.ts";
import { UsageError } from "./spec.ts";

/** The variable that holds the token itself. */
export const OPERATOR_TOKEN_VARIABLE = "TIERFOLD_OPERATOR_TOKEN";

/** What fits into a header, and cannot be guessed. */
const TOKEN = /^[A-Za-z0-9._~+/=-]{16,512}$/;

/** More than a token and its line end: what a wrong file may cost in memory, in bytes. */
const MAX_FILE_BYTES = 4096;

/**
 * Reads the operator's token, if there is one.
 *
 * @param file The value of --operator-token-file.
 * @throws {UsageError} when it is in both places, cannot be read, or is none; what it holds is not
 * repeated.
 */
export function readOperatorToken(
  file: string | undefined,
  env: ReadEnvironment,
): string | undefined {
  const variable = env(OPERATOR_TOKEN_VARIABLE);
  if (file === undefined) {
    return variable === undefined
      ? undefined
      : checked(variable, `${OPERATOR_TOKEN_VARIABLE} (environment)`);
  }
  if (variable !== undefined) {
    throw new UsageError([
      `${OPERATOR_TOKEN_VARIABLE} and --operator-token-file are both set; unset one, they may disagree`,
    ]);
  }
  const where = `operator token file ${file}`;
  try {
    const { size } = Deno.statSync(file);
    if (size > MAX_FILE_BYTES) {
      throw new UsageError([`${where}: expected a token, got a file of ${size} bytes`]);
    }
    return checked(Deno.readTextFileSync(file), where);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError([`${where}: cannot be read: ${describe(error)}`]);
  }
}

function checked(text: string, where: string): string {
  const token = text.trim();
  if (TOKEN.test(token)) return token;
  throw new UsageError([
    `${where}: expected 16 to 512 letters, digits and characters of . _ ~ + / = - ` +
    `(make one: openssl rand -hex 24), got ${token.length} characters` +
    (token.length < 16 || token.length > 512 ? "" : ", others among them"),
  ]);
}
