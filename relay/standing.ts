/**
 * Where a relay stands in the rounds, across its channels to the controller.
 *
 * @module
 */
import { invariant, WireError } from "../wire/errors.ts";
import type { HelloPlace, HelloStanding } from "../wire/control.ts";

/**
 * A frame is counted once, however often the channel breaks: the relay numbers its frames, and the
 * controller says at the next Hello whether it has the last one. Purely synchronous.
 *
 *     settled --ship--> pending --result--> settled
 *                         |
 *          channel lost, acknowledge: "held"  -> pending, its result is to come
 *                                     "again" -> settled, the same frame is shipped once more
 */
export class Standing {
  readonly #instance: number;
  #session = 0;
  #round = 0;
  #sent = 0;
  #pending = false;
  /** Whether the last Hello said that a result is due. */
  #told = false;

  /** @param instance The number of this relay's life; no two relays of a session share one. */
  constructor(instance: number) {
    this.#instance = instance;
  }

  /** Whether a frame was sent whose result has not come. */
  get pending(): boolean {
    return this.#pending;
  }

  /** Whether no controller has told us of its session yet. */
  get fresh(): boolean {
    return this.#session === 0;
  }

  /** The controller's round in which the next frame counts, or the pending one. */
  get round(): number {
    return this.#round;
  }

  /** A frame is sent. */
  ship(): void {
    invariant(!this.#pending, "a relay sends a frame before the last one's result");
    this.#pending = true;
    this.#sent++;
  }

  /** The result of the frame has come. */
  result(): void {
    invariant(this.#pending, "a result came without a frame");
    this.#pending = false;
    this.#round++;
  }

  /** What Hello says. */
  hello(): HelloStanding {
    this.#told = this.#pending;
    return {
      instance: this.#instance,
      session: this.#session,
      round: this.#round,
      sent: this.#sent,
      pending: this.#pending,
    };
  }

  /**
   * The controller has answered Hello.
   *
   * @param place What it says; undefined where it does not speak of rounds.
   * @returns Whether the frame that was sent must be sent again.
   * @throws {WireError} when it cannot say what became of that frame, or contradicts itself.
   */
  acknowledge(place: HelloPlace | undefined): boolean {
    const refuse = (text: string) =>
      new WireError("message", "connection", `coming back to the controller: ${text}`);
    const fate = place?.fate;
    if (this.#told && fate !== "again" && fate !== "held") {
      throw refuse("it does not say what became of the frame whose result is due");
    }
    if (!this.#told && fate !== undefined && fate !== "none") {
      throw refuse(`it speaks of a frame as "${fate}", and none was due`);
    }
    if (place !== undefined) {
      this.#session = place.session;
      this.#round = place.round;
    }
    // A frame made ready while Hello was on its way has reached nobody.
    const again = this.#pending && fate !== "held";
    if (again) {
      this.#pending = false;
      this.#sent--;
    }
    return again;
  }
}
