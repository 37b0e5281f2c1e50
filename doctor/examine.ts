/**
 * All checks, one after another.
 *
 * @module
 */
import { checkClock } from "./clock.ts";
import { amiss, type Finding } from "./finding.ts";
import { checkOpenFiles, checkPort, checkVersions } from "./host.ts";
import { checkKernel } from "./kernel.ts";
import type { DoctorOptions } from "./options.ts";
import { greetController, greetRelay } from "./reach.ts";
import { checkSalt } from "./salt.ts";
import { checkTls } from "./tls.ts";

/** Looks at everything that the options name. */
export async function examine(options: DoctorOptions): Promise<Finding[]> {
  const { worldSize, timeoutMs, controller, relay, http } = options;
  const { salt, findings } = checkSalt(options);
  const { identity, finding } = checkTls(options.tls);
  const greet = (
    who: "controller" | "relay",
    address: DoctorOptions["controller"],
    greeting: typeof greetRelay,
  ): Finding | Promise<Finding> => {
    if (address === undefined) {
      return amiss(who, "skipped", "no address to greet", `--${who} HOST:PORT, once it runs`);
    }
    if (salt === undefined) {
      return amiss(who, "skipped", "not greeted without a salt", "see to the salt first");
    }
    return greeting({ address, salt, worldSize, timeoutMs, identity });
  };
  return [
    ...checkVersions(),
    ...findings,
    ...finding,
    checkPort("port", options.listen),
    ...(http === undefined ? [] : [checkPort("http port", http)]),
    ...await checkOpenFiles(worldSize),
    ...await checkKernel(options.kernel),
    await checkClock(options.controllerHttp, timeoutMs),
    await greet("controller", controller, greetController),
    await greet("relay", relay, greetRelay),
  ];
}
