/**
 * Which ranks the controller knows to be here, and what it is still to be told.
 *
 * @module
 */
import type { FoldBarrier } from "../fold/barrier.ts";

/** How the controller is told. */
export interface Teller {
  /** Whether it can be told now. */
  readonly up: boolean;
  /** Says that a rank has left. */
  exit(rank: number): Promise<void>;
}

/** Keeps it: an exit is told once, and never before the frame that holds the rank's last work. */
export class Roll {
  readonly #barrier: FoldBarrier;
  readonly #teller: Teller;
  readonly #track: (task: Promise<void>) => void;
  /** The ranks that the controller takes to be here. */
  #told: readonly number[] = [];
  /** Exits to be told once the round that holds the ranks' last frames has gone up. */
  #exits: number[] = [];
  #goodbye: Promise<unknown> = Promise.resolve();

  /** @param track Keeps a task in view. */
  constructor(barrier: FoldBarrier, teller: Teller, track: (task: Promise<void>) => void) {
    this.#barrier = barrier;
    this.#teller = teller;
    this.#track = track;
  }

  /** Settles when every exit that was told has left this process. */
  get goodbye(): Promise<unknown> {
    return this.#goodbye;
  }

  /** Whether a rank takes part of which the controller was not told. */
  get isStale(): boolean {
    return this.#barrier.live.some((rank) => !this.#told.includes(rank));
  }

  /**
   * The ranks that Hello is to name, ascending.
   *
   * @param connected Those that are connected, whether they take part or not.
   */
  call(connected: Iterable<number>): readonly number[] {
    const { live, awaited, contributors } = this.#barrier;
    const here = new Set([...live, ...awaited, ...this.#exits, ...connected]);
    // Work that is due to be counted is told of, though all who did it are gone.
    if (here.size === 0) {
      this.#exits.push(...contributors);
      for (const rank of contributors) here.add(rank);
    }
    return this.#told = [...here].sort((a, b) => a - b);
  }

  /** A rank has left; `inRound` when its frame stays in the round. */
  left(rank: number, inRound: boolean): void {
    // An exit that overtook the host's frame would take this rank's last work out of the round.
    if (inRound || !this.#teller.up) this.#exits.push(rank);
    else this.tell([rank]);
  }

  /** A rank that waited to take part has left. */
  turnedAway(rank: number): void {
    if (this.#teller.up && !this.#exits.includes(rank)) this.tell([rank]);
  }

  /** A rank is back before its exit was told. */
  takeBack(rank: number): void {
    this.#exits = this.#exits.filter((exit) => exit !== rank);
  }

  /** Tells the exits that wait, but for those whose work is still to go up. */
  tellDue(): void {
    const due = this.#exits.splice(0);
    const waits = (rank: number) =>
      this.#barrier.phase === "gathering" && this.#barrier.holds(rank);
    this.#exits.push(...due.filter(waits));
    this.tell(due.filter((rank) => !waits(rank)));
  }

  /** Tells all exits that wait. */
  tellAll(): void {
    this.tell(this.#exits.splice(0));
  }

  /** Tells exits, as far as the controller was told that these ranks are here. */
  tell(ranks: readonly number[]): void {
    const known = ranks.filter((rank) => this.#told.includes(rank));
    this.#told = this.#told.filter((rank) => !known.includes(rank));
    const telling = known.map((rank) => this.#teller.exit(rank));
    this.#goodbye = Promise.all([this.#goodbye, ...telling]);
    for (const exit of telling) this.#track(exit);
  }
}
