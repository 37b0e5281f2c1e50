/**
 * Results of rounds that somebody may not have yet.
 *
 * @module
 */
import type { Bytes, SlotReader } from "../frames/slot.ts";

/** Most results of closed rounds that are kept for relays that are away. */
const MOST_KEPT = 3;

/**
 * The result of one round: its memory stays until every relay in the round has shown that it has it, by
 * its next frame or by leaving.
 */
class KeptResult implements SlotReader {
  readonly #waiting: Set<number>;
  #sending = 0;
  #actions: (() => void)[] = [];

  constructor(readonly round: number, readonly record: Bytes, instances: Iterable<number>) {
    this.#waiting = new Set(instances);
  }

  get done(): boolean {
    return this.#waiting.size === 0 && this.#sending === 0;
  }

  has(instance: number): void {
    this.#waiting.delete(instance);
    this.#settle();
  }

  whenDone(action: () => void): void {
    if (this.done) action();
    else this.#actions.push(action);
  }

  abandon(): void {
    this.#waiting.clear();
    this.#settle();
  }

  async lend(use: (record: Bytes) => Promise<void>): Promise<void> {
    this.#sending++;
    try {
      await use(this.record);
    } finally {
      this.#sending--;
      this.#settle();
    }
  }

  #settle(): void {
    if (!this.done) return;
    for (const action of this.#actions.splice(0)) action();
  }
}

/** Several readers of one slot as one. */
class Readers implements SlotReader {
  constructor(readonly readers: readonly SlotReader[]) {}

  get done(): boolean {
    return this.readers.every(({ done }) => done);
  }

  whenDone(action: () => void): void {
    let left = this.readers.length;
    for (const reader of this.readers) {
      reader.whenDone(() => {
        if (--left === 0) action();
      });
    }
  }

  abandon(): void {
    for (const reader of this.readers) reader.abandon();
  }
}

/** The results that are kept, by round. */
export class Results {
  readonly #kept: KeptResult[] = [];

  /**
   * Keeps a result for these relays.
   *
   * @param other Who else reads it.
   * @returns Who reads the memory of it on.
   */
  keep(
    round: number,
    record: Bytes,
    instances: readonly number[],
    other: SlotReader | undefined,
  ): SlotReader {
    const kept = new KeptResult(round, record, instances);
    this.#drop();
    this.#kept.push(kept);
    while (this.#kept.length > MOST_KEPT) this.#kept.shift()!.abandon();
    return other === undefined ? kept : new Readers([kept, other]);
  }

  /** Whether a round's result can still be sent. */
  has(round: number): boolean {
    return this.#find(round) !== undefined;
  }

  /** Sends a round's result once more, if it is still there. */
  async send(round: number, use: (record: Bytes) => Promise<void>): Promise<void> {
    await this.#find(round)?.lend(use);
  }

  /** A relay has what it was owed, or will not ask for it. */
  settled(instance: number): void {
    for (const kept of [...this.#kept]) kept.has(instance);
    this.#drop();
  }

  #find(round: number): KeptResult | undefined {
    return this.#kept.find((kept) => kept.round === round && !kept.done);
  }

  #drop(): void {
    const kept = this.#kept.filter(({ done }) => !done);
    this.#kept.splice(0, this.#kept.length, ...kept);
  }
}
