/**
 * Connecting again and again with growing pauses, whatever makes the connection.
 *
 * @module
 */
import { type Connection, TransportError } from "./connection.ts";
import { type Address, formatAddress } from "./address.ts";

/** First pause between two attempts to connect; it doubles up to {@link LAST_PAUSE_MS}. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2_000;

/** Waits, or until the signal aborts. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}

/**
 * Connects by attempts until the deadline.
 *
 * @param what Who is connected to, for the error: "the controller".
 * @param attempt Tries once, for so many milliseconds; gives what went wrong where trying again may help,
 *   and throws where it cannot.
 * @throws {TransportError} with code "unreachable" when the time has passed, "ended" when aborted.
 */
export async function connectByAttempts(
  address: Address,
  what: string,
  { deadlineMs, signal }: { deadlineMs: number; signal?: AbortSignal },
  attempt: (ms: number) => Promise<Connection | Error>,
): Promise<Connection> {
  const end = Date.now() + deadlineMs;
  let wait = FIRST_PAUSE_MS;
  for (let attempts = 1;; attempts++) {
    const failure = signal?.aborted
      ? new Error("stopped before the first attempt")
      : await attempt(end - Date.now());
    if (!(failure instanceof Error)) return failure;
    if (signal?.aborted) {
      throw new TransportError("ended", `connecting to ${what}: stopped on request`);
    }
    if (Date.now() + wait >= end) {
      throw new TransportError(
        "unreachable",
        `connecting to ${what} at ${formatAddress(address)}: ${attempts} attempts in ` +
          `${deadlineMs} ms failed, the last one with: ${failure.message}`,
        { cause: failure },
      );
    }
    await pause(wait, signal);
    wait = Math.min(2 * wait, LAST_PAUSE_MS);
  }
}
