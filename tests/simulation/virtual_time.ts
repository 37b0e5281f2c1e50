// Time that passes only when nothing is left to do: timers ring one after another, as fast as the
// machine can, and whatever they set going runs to its end before the next one rings.
// @ts-types="@types/sinonjs__fake-timers"
import FakeTimers from "@sinonjs/fake-timers";
import { setImmediate } from "node:timers";

/** How often the loop is given a turn before a standstill is believed. */
const LAST_TURNS = 8;

/** A real turn of the loop: all that is ready to run has run. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(() => resolve());
  });
}

/** What time came to. */
export interface Elapsed<T> {
  readonly value: T;
  /** Timers that are still set. */
  readonly timers: number;
  /** Virtual time, in milliseconds. */
  readonly ms: number;
}

/** Waits in virtual time. */
export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/**
 * Runs `body` in virtual time, from 0. Nothing else of this thread may set timers meanwhile.
 *
 * @param limitMs When virtual time ends.
 * @throws {Error} when it ends before `body`, or nothing can happen any more.
 */
export async function inVirtualTime<T>(
  body: () => Promise<T>,
  limitMs: number,
): Promise<Elapsed<T>> {
  const clock = FakeTimers.install({
    now: 0,
    toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date", "performance"],
  });
  try {
    let done: { value: T } | { error: unknown } | undefined;
    body().then((value) => done = { value }, (error) => done = { error });
    for (let idle = 0;;) {
      await turn();
      if (done !== undefined) break;
      if (clock.countTimers() > 0) {
        idle = 0;
        clock.next();
        if (clock.now > limitMs) throw new Error(`not done after ${limitMs} virtual milliseconds`);
      } else if (++idle > LAST_TURNS) {
        throw new Error(`a standstill at ${clock.now} ms: no timer is set, and it is not done`);
      }
    }
    if ("error" in done) throw done.error;
    return { value: done.value, timers: clock.countTimers(), ms: clock.now };
  } finally {
    clock.uninstall();
  }
}
