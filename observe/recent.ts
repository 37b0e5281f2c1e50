/**
 * The newest entries of what goes on for ever.
 *
 * @module
 */

/** A list that forgets its oldest entries at its limit, and knows how many there ever were. */
export class Recent<T> {
  readonly #limit: number;
  readonly #entries: T[] = [];
  #count = 0;

  /** @param limit How many entries stay. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** How many entries were ever added. */
  get count(): number {
    return this.#count;
  }

  /** Adds an entry as the newest one. */
  add(entry: T): void {
    this.#entries.push(entry);
    this.#count++;
    if (this.#entries.length > this.#limit) this.#entries.shift();
  }

  /** What is still there, oldest first. */
  all(): T[] {
    return [...this.#entries];
  }

  /** What is still there of those added after the first `count`, oldest first. */
  since(count: number): T[] {
    const fresh = Math.min(this.#count - count, this.#entries.length);
    return fresh <= 0 ? [] : this.#entries.slice(-fresh);
  }
}
