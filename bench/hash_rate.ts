/**
 * The machine's hash rate, of one core alone and of all at once.
 *
 * @module
 */

import { Child } from "./child.ts";
import { mean } from "./figures.ts";

/** Hash rates in GB/s (10^9 bytes per second) per core. */
export interface HashRate {
  /** One core, the others idle. */
  alone: number;
  /** The mean per core while all of them hash. */
  together: number;
}

/**
 * Measures both rates in processes of their own.
 *
 * @param secondsPerPass Length of one of the five passes of each.
 */
export async function measureHashRate(secondsPerPass = 0.3): Promise<HashRate> {
  const script = new URL("./hash_probe.ts", import.meta.url).pathname;
  const probe = async (): Promise<number> => {
    const child = new Child({
      name: "hash probe",
      command: [Deno.execPath(), "run", "--quiet", script, String(secondsPerPass)],
    });
    try {
      return Number(await child.expect("gb_s ", 60_000));
    } finally {
      await child.stop();
    }
  };
  const alone = await probe();
  const together = await Promise.all(
    Array.from({ length: navigator.hardwareConcurrency }, () => probe()),
  );
  return { alone, together: mean(together) };
}
