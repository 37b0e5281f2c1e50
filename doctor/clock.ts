/**
 * Compares this host's clock with the controller's.
 *
 * @module
 */
import { formatHostPort, type HostPort } from "../cli/values.ts";
import { AUTH_WINDOW_MS } from "../controller/passes/auth.ts";
import { amiss, type Finding, ok } from "./finding.ts";

const CHECK = "clock";
/** The Date of an answer is cut to whole seconds. */
const RESOLUTION_MS = 1_000;
/** From here on logs of two hosts are hard to read side by side, in milliseconds. */
const WORTH_A_WORD_MS = 5_000;
const ADVICE = "run an NTP client on both hosts; timedatectl says whether one is at work";

/**
 * Asks the controller's HTTP port for the time.
 *
 * @param now The clock to compare.
 */
export async function checkClock(
  address: HostPort | undefined,
  timeoutMs: number,
  now: () => number = Date.now,
): Promise<Finding> {
  if (address === undefined) {
    return amiss(CHECK, "skipped", "no other clock to compare with", "--controller-http HOST:PORT");
  }
  const where = formatHostPort(address);
  const asked = now();
  let date: string | null;
  try {
    const response = await fetch(`http://${where}/healthz`, {
      signal: AbortSignal.timeout(timeoutMs),
    });
    await response.body?.cancel();
    date = response.headers.get("date");
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return amiss(
      CHECK,
      "problem",
      `asking http://${where} for the time: ${text}`,
      "start the controller with --http, and check the address",
    );
  }
  const answered = now();
  const theirs = Date.parse(date ?? "");
  if (Number.isNaN(theirs)) {
    return amiss(CHECK, "skipped", `http://${where} does not say the time`, ADVICE);
  }
  return judgeSkew(where, theirs, asked, answered);
}

/**
 * What two clocks say of each other.
 *
 * @param theirs The other clock at some time between `asked` and `answered`, cut to whole seconds.
 */
export function judgeSkew(
  where: string,
  theirs: number,
  asked: number,
  answered: number,
): Finding {
  // The least that the clocks are apart by, whatever the network took.
  const ahead = theirs - answered;
  const behind = asked - (theirs + RESOLUTION_MS);
  const apart = Math.max(ahead, behind, 0);
  const found = apart === 0
    ? `in step with ${where}, as far as seconds tell`
    : `at least ${(apart / 1000).toFixed(1)} s ${ahead > behind ? "behind" : "ahead of"} ${where}`;
  if (apart >= AUTH_WINDOW_MS) {
    return amiss(
      CHECK,
      "problem",
      `${found}; signed HTTP requests from here are refused from ${AUTH_WINDOW_MS / 1000} s on`,
      ADVICE,
    );
  }
  return apart >= WORTH_A_WORD_MS ? amiss(CHECK, "warning", found, ADVICE) : ok(CHECK, found);
}
