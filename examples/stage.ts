/**
 * The frame around a demo: its processes end with it, whether it ends well, fails, or is interrupted.
 *
 * @module
 */

import { InvalidArgumentError } from "commander";
import { ProcessError, ProcessGroup } from "./processes.ts";

/** Signals that end a demo, with the exit codes that shells give them. */
const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

/** Somebody wants the demo to end. */
class Interrupted extends Error {
  constructor(readonly signal: keyof typeof SIGNALS) {
    super(`told to by ${signal}`);
  }
}

/** Reads an option that is a whole number, for commander. */
export function within(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`Expected a whole number from ${least} to ${most}.`);
  };
}

/**
 * Runs `demo` until it ends, one of its processes fails, or a signal comes; says how long it took.
 *
 * @param demo Starts its processes in the group that it is given; returns the exit code.
 * @returns The exit code, after every process has ended.
 */
export async function onStage(demo: (group: ProcessGroup) => Promise<number>): Promise<number> {
  const stop = Promise.withResolvers<never>();
  const handlers = (Object.keys(SIGNALS) as (keyof typeof SIGNALS)[]).map((signal) => {
    const handler = () => stop.reject(new Interrupted(signal));
    Deno.addSignalListener(signal, handler);
    return () => Deno.removeSignalListener(signal, handler);
  });
  const started = performance.now();
  try {
    await using group = new ProcessGroup();
    const code = await Promise.race([demo(group), stop.promise, group.failed]);
    console.log(`\nTook ${((performance.now() - started) / 1000).toFixed(0)} s.`);
    return code;
  } catch (error) {
    if (!(error instanceof Interrupted || error instanceof ProcessError)) throw error;
    console.error(`\ndemo: all processes were ended: ${error.message}`);
    return error instanceof Interrupted ? SIGNALS[error.signal] : 1;
  } finally {
    handlers.forEach((remove) => remove());
  }
}
