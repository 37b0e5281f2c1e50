/**
 * Tells another thread whether a round is under way, so that what can wait makes room for it.
 *
 * @module
 */

/** Where the parts lie, in Int32s: 1 while a round is under way; until when it echoes afterwards. */
const ACTIVE = 0;
const ECHO = 1;

/** How much of a round's time its result needs after it has left: relays and ranks verify it. */
const ECHO_SHARE = 0.5;
/** The longest echo, in milliseconds. */
const MAX_ECHO_MS = 1_000;

/** Set by the thread that runs the rounds. */
export class RoundSign {
  /** To be sent to the other thread. */
  readonly shared = new SharedArrayBuffer(8);
  readonly #words = new Int32Array(this.shared);
  #beganAt = 0;

  /** A round has begun. */
  begin(): void {
    this.#beganAt = performance.now();
    Atomics.store(this.#words, ACTIVE, 1);
  }

  /** The round's result has left. */
  end(): void {
    const echo = Math.min(ECHO_SHARE * (performance.now() - this.#beganAt), MAX_ECHO_MS);
    Atomics.store(this.#words, ECHO, clock() + Math.round(echo));
    Atomics.store(this.#words, ACTIVE, 0);
  }
}

/** Whether the sign says that a round is under way or has just ended. */
export function roundIsNear(shared: SharedArrayBuffer): boolean {
  const words = new Int32Array(shared);
  // The difference of wrapped numbers is right across the wrap.
  return Atomics.load(words, ACTIVE) === 1 || ((Atomics.load(words, ECHO) - clock()) | 0) > 0;
}

/** Milliseconds as all threads of a process count them, wrapped to 32 bits. */
function clock(): number {
  return Date.now() | 0;
}
