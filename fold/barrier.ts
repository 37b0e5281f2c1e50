/**
 * Who a round waits for, and in which order its frames are folded. The same machine serves the relay,
 * whose members are ranks, and the controller, whose members are hosts.
 *
 * @module
 */
import { invariant } from "../wire/errors.ts";
import type { HeldFrame } from "./frame_fold.ts";
import { schemaDifference } from "./schema.ts";

/**
 * Where a member stands.
 *
 *     expected --join--> idle --deliver--> delivered --close--> idle
 *         |                |                   |
 *         +----- leave ----+------ leave ------+--> gone --join--> idle
 *                                              <-- rejoin --+
 *
 * What a member delivered stays in the round when it leaves. A member joins while a round has no frame
 * yet, or, when it is expected, at any time.
 */
export type MemberState = "expected" | "idle" | "delivered" | "gone";

/**
 * Where the round stands.
 *
 *     gathering --every member delivered or gone, at least one frame: seal--> sealed --close--> gathering
 *         ^------------------------- unseal, to fold it once more -------------+
 */
export type RoundPhase = "gathering" | "sealed";

/** Collects one frame of every member, round after round. Purely synchronous. */
export class FoldBarrier {
  readonly #states = new Map<number, MemberState>();
  readonly #frames = new Map<number, HeldFrame>();
  readonly #taken = new Set<number>();
  #phase: RoundPhase = "gathering";
  #round = 0;
  #contested = false;

  /** @param members Numbers of the members expected from the start, whose order is the fold's. */
  constructor(members: Iterable<number>) {
    for (const member of members) this.#states.set(member, "expected");
  }

  /** The round's number, from 0. */
  get round(): number {
    return this.#round;
  }

  get phase(): RoundPhase {
    return this.#phase;
  }

  /** Where `member` stands; "gone" for a stranger. */
  state(member: number): MemberState {
    return this.#states.get(member) ?? "gone";
  }

  /** Members that can still send and receive, ascending. */
  get live(): number[] {
    return this.#those((state) => state === "idle" || state === "delivered");
  }

  /** Members that the round waits for, ascending. */
  get awaited(): number[] {
    return this.#those((state) => state === "expected" || state === "idle");
  }

  /** Members whose frame this round has, ascending. */
  get contributors(): number[] {
    return [...this.#frames.keys()].sort((a, b) => a - b);
  }

  /** Whether this round has a frame of `member`. */
  holds(member: number): boolean {
    return this.#frames.has(member);
  }

  /** Whether a member that left, or a new one, may join now. */
  get open(): boolean {
    return this.#phase === "gathering" && this.#frames.size === 0;
  }

  /** Whether nobody is left and nobody is expected. */
  get deserted(): boolean {
    return this.live.length === 0 && this.awaited.length === 0;
  }

  /** Whether frames of more than one schema came, so that one must be chosen before folding. */
  get contested(): boolean {
    return this.#contested;
  }

  /** Whether all frames that can come are there, and there is at least one. */
  get complete(): boolean {
    return this.#phase === "gathering" && this.#frames.size > 0 && this.awaited.length === 0;
  }

  /** Makes the round that is gathering wait for a member that was not expected from the start. */
  expect(member: number): void {
    invariant(this.#phase === "gathering", `member ${member} is expected in a sealed round`);
    this.#states.set(member, "expected");
  }

  /** Takes a member in. */
  join(member: number): void {
    const state = this.state(member);
    invariant(
      state === "expected" || (state === "gone" && this.open),
      `member ${member} joins while ${state} in round ${this.#round}`,
    );
    this.#states.set(member, "idle");
  }

  /** Takes back a member that left after it had delivered in this round. */
  rejoin(member: number): void {
    const state = this.state(member);
    invariant(
      state === "gone" && this.#frames.has(member),
      `member ${member} comes back to its frame while ${state} in round ${this.#round}`,
    );
    this.#states.set(member, "delivered");
  }

  /** Whether a frame of `member` may come now. */
  maySend(member: number): boolean {
    return this.#phase === "gathering" && this.state(member) === "idle";
  }

  /** Takes a member's verified frame. */
  deliver(member: number, frame: HeldFrame): void {
    invariant(this.maySend(member), `member ${member} delivers while ${this.state(member)}`);
    const [first] = this.#frames.values();
    if (first && schemaDifference(frame.header, first.header) !== undefined) {
      this.#contested = true;
    }
    this.#frames.set(member, frame);
    this.#states.set(member, "delivered");
  }

  /**
   * Lets a member go; what it delivered stays.
   *
   * @returns Whether the round that is gathering holds a frame of it.
   */
  leave(member: number): boolean {
    this.#states.set(member, "gone");
    return this.#phase === "gathering" && this.#frames.has(member);
  }

  /** Takes a member's frame out of the round; only before any of it was folded for good. */
  discard(member: number): void {
    invariant(this.#phase === "gathering", "a frame is discarded from a sealed round");
    this.#frames.delete(member);
    this.#taken.delete(member);
  }

  /**
   * The frames that can be folded now and were not handed out before: in ascending order, up to the
   * first member that the round still waits for. None while the schema is contested.
   *
   * @param atLeast How many there must be; fewer are left for later.
   */
  takeReady(atLeast = 1): HeldFrame[] {
    if (this.#phase !== "gathering" || this.#contested) return [];
    const before = this.awaited[0] ?? Infinity;
    const ready: number[] = [];
    for (const member of this.contributors) {
      if (member >= before) break;
      if (!this.#taken.has(member)) ready.push(member);
    }
    if (ready.length < atLeast) return [];
    for (const member of ready) this.#taken.add(member);
    return ready.map((member) => this.#frames.get(member)!);
  }

  /** Declares a contest settled, after the odd frames were discarded: all frames are ready again. */
  settle(): void {
    this.#contested = false;
    this.restart();
  }

  /** Has all frames handed out once more. */
  restart(): void {
    this.#taken.clear();
  }

  /** The frame of a contributor. */
  frame(member: number): HeldFrame {
    const frame = this.#frames.get(member);
    invariant(frame !== undefined, `member ${member} has no frame in round ${this.#round}`);
    return frame;
  }

  /** Ends the gathering: from here on nothing enters the round. */
  seal(): void {
    invariant(this.complete, `round ${this.#round} is sealed before it is complete`);
    this.#phase = "sealed";
  }

  /** Takes the seal back: the same frames are to be folded once more. */
  unseal(): void {
    invariant(this.#phase === "sealed", `round ${this.#round} is unsealed before it was sealed`);
    this.#phase = "gathering";
    this.#taken.clear();
  }

  /** Ends the round: its result is there, and the next one gathers. */
  close(): void {
    invariant(this.#phase === "sealed", `round ${this.#round} is closed before it was sealed`);
    for (const [member, state] of this.#states) {
      if (state === "delivered") this.#states.set(member, "idle");
    }
    this.#frames.clear();
    this.#taken.clear();
    this.#contested = false;
    this.#phase = "gathering";
    this.#round++;
  }

  #those(wanted: (state: MemberState) => boolean): number[] {
    const members: number[] = [];
    for (const [member, state] of this.#states) if (wanted(state)) members.push(member);
    return members.sort((a, b) => a - b);
  }
}
