// Waiting with a deadline, for whatever a test waits for.
import { AssertionError } from "@std/assert";

/** How long anything on this machine may take that takes milliseconds when nothing is wrong. */
export const PATIENCE_MS = 60_000;

/** What `promise` gives; fails when that takes too long. */
export async function soon<T>(what: string, promise: Promise<T>, ms = PATIENCE_MS): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new AssertionError(`${what}: nothing within ${ms} ms`)),
      ms,
    );
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The error with which `promise` rejects; fails when it does not, or its text does not match. */
export async function failure(
  what: string,
  promise: Promise<unknown>,
  ...texts: (string | RegExp)[]
): Promise<Error> {
  const outcome = await soon(what, promise.then((value) => ({ value }), (error) => ({ error })));
  if (!("error" in outcome)) {
    throw new AssertionError(`${what}: went well, expected it to fail: ${show(outcome.value)}`);
  }
  const { error } = outcome;
  if (!(error instanceof Error)) throw new AssertionError(`${what}: threw ${error}`);
  for (const text of texts) {
    if (!matches(error.message, text)) {
      throw new AssertionError(`${what}: "${error.message}" does not have ${text}`);
    }
  }
  return error;
}

/** Whether `line` has that text. */
export function matches(line: string, text: string | RegExp): boolean {
  return typeof text === "string" ? line.includes(text) : text.test(line);
}

/** What `promise` gives, or undefined when that takes longer. */
export async function unlessLater<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A pause, for things that give no sign. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function show(value: unknown): string {
  return JSON.stringify(value) ?? String(value);
}
