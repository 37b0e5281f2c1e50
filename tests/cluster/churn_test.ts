// Sessions in which ranks leave, die in the middle of a round and come back, at random. Rank r gives 2^r,
// so that the sum of a round says exactly whose frames it holds.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import type { RankClient } from "../../rank/client.ts";
import { TransportError } from "../../transport/connection.ts";
import { Session } from "./session.ts";
import { PATIENCE_MS, pause, soon, unlessLater } from "./waiting.ts";

const HOSTS = [[0, 1], [2], [3, 4, 5]];
const ALL = HOSTS.flat();
/** Stays, so that the session goes on. */
const STEADY = 0;

interface Step {
  /** Ranks that close before the round. */
  readonly leave: readonly number[];
  /** Ranks that come back before it. */
  readonly back: readonly number[];
  /** Ranks that close in the middle of it. */
  readonly die: readonly number[];
  /** Ranks that come back in the middle of it. */
  readonly late: readonly number[];
  /** When in the round that happens, in milliseconds. */
  readonly after: number;
  /** Whether rank 1 gives a tensor of another size, which costs it its place. */
  readonly odd: boolean;
}

const step: fc.Arbitrary<Step> = fc.record({
  leave: fc.subarray(ALL, { maxLength: 1 }),
  back: fc.subarray(ALL),
  die: fc.subarray(ALL, { maxLength: 3 }),
  late: fc.subarray(ALL, { maxLength: 3 }),
  after: fc.constantFrom(0, 0, 1, 3, 8),
  odd: fc.constantFrom(false, false, false, true),
});

/** A rank's part in a round that it has begun. */
interface Part {
  readonly data: Float32Array;
  readonly outcome: Promise<{ mass: number } | Error>;
  ended: boolean;
}

/** A session in which ranks come and go; a relay that all its ranks have left is started again. */
class Churn {
  readonly #session: Session;
  readonly #size: number;
  readonly #live = new Map<number, RankClient>();
  /** Ranks that wait to be let in. */
  readonly #coming = new Set<number>();
  /** What went wrong with one of them. */
  #failure: unknown;
  /** Parts that have begun and not ended. */
  readonly #parts = new Map<number, Part>();
  /** Relays that are being started again. */
  readonly #restarts: Record<number, Promise<void>> = {};
  /** How often a rank has closed with a part whose frame may still count, in this round or the next. */
  readonly #ghosts = new Map<number, number>();

  constructor(session: Session, size: number, clients: readonly RankClient[]) {
    this.#session = session;
    this.#size = size;
    for (const client of clients) this.#live.set(client.rank, client);
  }

  async step({ leave, back, die, late, after, odd }: Step): Promise<void> {
    for (const rank of leave) await this.#leave(rank);
    this.#invite(back);
    if (odd && this.#live.has(1) && !this.#parts.has(1)) this.#begin(1, this.#size + 1);
    for (const rank of this.#live.keys()) this.#begin(rank);
    if (after > 0) await pause(after);
    for (const rank of die) await this.#leave(rank);
    this.#invite(late);
    await this.#endRound();
  }

  /** Rounds until everybody who wants to come back is there. */
  async settle(): Promise<void> {
    while (this.#coming.size > 0) {
      await this.step({ leave: [], back: [], die: [], late: [], after: 2, odd: false });
    }
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Lets ranks come back, which begin a round as soon as they may. */
  #invite(ranks: readonly number[]): void {
    for (const rank of ranks) {
      if (this.#live.has(rank) || this.#coming.has(rank)) continue;
      this.#coming.add(rank);
      this.#join(rank)
        .then(() => this.#begin(rank))
        .catch((error) => this.#failure ??= error)
        .finally(() => this.#coming.delete(rank));
    }
  }

  async #join(rank: number): Promise<void> {
    const host = HOSTS.findIndex((ranks) => ranks.includes(rank));
    const started = Date.now();
    for (;;) {
      try {
        await this.#restart(host);
        this.#live.set(
          rank,
          await soon(`rank ${rank} is let in`, this.#session.rank(rank, { joinTimeoutMs: 1_000 })),
        );
        return;
      } catch (error) {
        // Its last connection may still be there, or its relay may just be ending.
        if (!(error instanceof TransportError) || Date.now() - started > PATIENCE_MS) throw error;
        await pause(2);
      }
    }
  }

  /** Starts a relay again when it has ended. */
  async #restart(host: number): Promise<void> {
    if (await unlessLater(0, this.#session.relays[host]!.outcome) === undefined) return;
    await (this.#restarts[host] ??= this.#session.startRelay(host, { joinDeadlineMs: 200 }).then(
      () => {
        delete this.#restarts[host];
      },
    ));
  }

  async #leave(rank: number): Promise<void> {
    if (rank === STEADY) return;
    await this.#live.get(rank)?.close();
    this.#live.delete(rank);
    if (this.#parts.delete(rank)) this.#ghosts.set(rank, this.#ghostsOf(rank) + 1);
  }

  #ghostsOf(rank: number): number {
    return this.#ghosts.get(rank) ?? 0;
  }

  #begin(rank: number, size = this.#size): void {
    // One that has ended was taken for the next round's, since it was slow to say so.
    if (this.#parts.get(rank)?.ended === false) return;
    const data = new Float32Array(size).fill(2 ** rank);
    const outcome = this.#live.get(rank)!.allReduce([data], { kind: "control", mass: 1 })
      .catch((error: Error) => error);
    const part: Part = { data, outcome, ended: false };
    outcome.then(() => part.ended = true);
    this.#parts.set(rank, part);
  }

  /** Ends the round that the steady rank is in, and checks it. */
  async #endRound(): Promise<void> {
    const { data, outcome } = this.#parts.get(STEADY)!;
    const steady = await soon("the round", outcome);
    if (steady instanceof Error) throw steady;
    const sum = data[0]!;
    const holders = ALL.filter((rank) => sum & 2 ** rank);
    assertEquals(steady.mass, holders.length);
    for (const rank of holders) {
      const part = this.#parts.get(rank);
      const ghosts = this.#ghostsOf(rank);
      assert(part !== undefined || ghosts > 0, `rank ${rank} is in the sum ${sum} without a part`);
      // With a ghost in the sum, a new part of that rank may belong to the next round.
      const other = ghosts === 0
        ? await soon(`the round of rank ${rank}`, part!.outcome)
        : part && await unlessLater(200, part.outcome);
      if (part === undefined || other === undefined) {
        this.#ghosts.set(rank, ghosts - 1);
        continue;
      }
      if (other instanceof Error) throw other;
      assertEquals(other.mass, steady.mass);
      assertEquals(part.data.findIndex((value) => value !== sum), -1);
      this.#parts.delete(rank);
    }
    await this.#endOdd();
    // Who has begun and is not in this round came in its middle: the next one is theirs.
  }

  /** Rank 1 shares its host with the steady rank: where the two differ, it is rank 1 that goes. */
  async #endOdd(): Promise<void> {
    const part = this.#parts.get(1);
    if (part === undefined || part.data.length === this.#size) return;
    const outcome = await soon("the odd one's end", part.outcome);
    assert(outcome instanceof Error, "an odd frame passed");
    const { message } = outcome as Error;
    assert(message.includes("folding the frame of rank 1 with that of rank 0"), message);
    this.#parts.delete(1);
    this.#live.delete(1);
  }
}

Deno.test("churn: whoever comes and goes, each round is one sum of exactly the frames it had", async () => {
  const runs = Number(Deno.env.get("TIERFOLD_CHURN_RUNS") ?? 8);
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 4, maxLength: 8 }),
      fc.constantFrom(1, 1, 1_000, 400_000),
      async (steps, size) => {
        await using session = await Session.start({ hosts: HOSTS });
        const churn = new Churn(session, size, await session.ranks());
        try {
          for (const one of steps) await churn.step(one);
          await churn.settle();
        } catch (error) {
          throw new Error(`${error}\n${session.log.lines.join("\n")}`, { cause: error });
        }
        await session.finish();
      },
    ),
    { numRuns: runs, endOnFailure: true },
  );
});
