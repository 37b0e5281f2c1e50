/**
 * Who is let in at a relay, and when.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { FoldBarrier } from "../fold/barrier.ts";
import { WireError } from "../wire/errors.ts";
import type { RankHandshake } from "../wire/handshake.ts";
import { expectMember } from "./admission.ts";
import { settledWithin } from "./patience.ts";
import type { RankPort } from "./rank_port.ts";
import type { RelaySettings } from "./settings.ts";

/** How long the connection of a rank that is there already may take to end, in milliseconds. */
const TAKEOVER_MS = 1_000;

/** What happens at the door. */
export interface DoorEvents {
  /**
   * Whether that rank may take part now, where the round lets it.
   *
   * @throws {WireError} when it never may.
   */
  ready(port: RankPort): boolean;
  /** A rank takes part from here on. */
  enter(rank: number, port: RankPort): void;
  /** A rank waits for the end of the round. */
  waits(): void;
}

/** Somebody who waits for the end of the round. */
interface Joiner {
  readonly port: RankPort;
  readonly enter: () => void;
  readonly giveUp: (error: WireError) => void;
}

/** The ranks' connections that were accepted. */
export class Door {
  readonly #settings: RelaySettings;
  readonly #barrier: FoldBarrier;
  readonly #events: DoorEvents;
  readonly #log;
  /** Those that wait for the end of a round included. */
  readonly #ports = new Map<number, RankPort>();
  /** By rank: settles when the port that it left by does nothing more to its slot. */
  readonly #parting = new Map<number, Promise<void>>();
  #joiners: Joiner[] = [];
  /** Why nobody is let in any more, once the session is over. */
  #closed: string | undefined;

  constructor(settings: RelaySettings, barrier: FoldBarrier, events: DoorEvents) {
    this.#settings = settings;
    this.#barrier = barrier;
    this.#events = events;
    this.#log = getLogger(["tierfold", "relay"]).with({ host: settings.host });
  }

  /** Ranks that are connected. */
  get ranks(): number[] {
    return [...this.#ports.keys()];
  }

  /** Whether somebody waits for the end of the round. */
  get isCrowded(): boolean {
    return this.#joiners.length > 0;
  }

  /** A rank's connection. */
  port(rank: number): RankPort | undefined {
    return this.#ports.get(rank);
  }

  /**
   * Decides on a handshake.
   *
   * @throws {WireError} when it is refused.
   */
  async admit(handshake: RankHandshake, port: RankPort): Promise<void> {
    const { rank } = handshake;
    const other = this.#ports.get(rank);
    // A rank that starts anew can be quicker than the end of its old connection.
    if (other !== undefined) await settledWithin(other.done, TAKEOVER_MS);
    if (port.gone) return;
    expectMember(handshake, this.#settings, port.peer, this.#ports.get(rank)?.peer);
    this.#ports.set(rank, port);
    await this.#parting.get(rank);
    if (this.#ports.get(rank) !== port) return;
    // Who came before the end and waited here would wait for a round that never ends.
    if (this.#closed !== undefined) {
      throw new WireError("membership", "connection", this.#closed);
    }
    const may = this.#barrier.state(rank) === "expected" || this.#barrier.open;
    if (may && this.#events.ready(port)) return this.#events.enter(rank, port);
    this.#log.info("rank {rank} is back at {peer} and waits for the end of round {round}", {
      rank,
      peer: port.peer,
      round: this.#barrier.round,
    });
    this.#events.waits();
    const waiting = new Promise<void>((resolve, giveUp) => {
      const enter = () => {
        // It may have hung up meanwhile.
        if (this.#ports.get(rank) === port) this.#events.enter(rank, port);
        resolve();
      };
      this.#joiners.push({ port, enter, giveUp });
    });
    const { joinDeadlineMs } = this.#settings;
    // A round has a deadline of its own; a result to catch up with may never come.
    const timer = port.asks ? setTimeout(() => this.#tooLong(port), joinDeadlineMs) : undefined;
    try {
      await waiting;
    } finally {
      clearTimeout(timer);
    }
  }

  /** A connection has ended; gives the rank whose place it had. */
  leave(port: RankPort): number | undefined {
    for (const [rank, other] of this.#ports) {
      if (other !== port) continue;
      this.#ports.delete(rank);
      if (port.rank !== undefined) this.#parting.set(rank, port.done);
      return rank;
    }
    return undefined;
  }

  /** The round is over: those who waited for that are let in. */
  open(): void {
    for (const joiner of this.#joiners.splice(0)) {
      try {
        if (joiner.port.gone || this.#events.ready(joiner.port)) joiner.enter();
        else this.#joiners.push(joiner);
      } catch (error) {
        if (!(error instanceof WireError)) throw error;
        joiner.giveUp(error);
      }
    }
  }

  /** Turns away one that waited for the consensus. */
  #tooLong(port: RankPort): void {
    const at = this.#joiners.findIndex((joiner) => joiner.port === port);
    if (at < 0) return;
    const [{ giveUp }] = this.#joiners.splice(at, 1) as [Joiner];
    const text =
      `giving the consensus to ${port.peer}: no Model round up to round ${this.#barrier.round} had a ` +
      `result within ${this.#settings.joinDeadlineMs} ms; connect without asking for it`;
    giveUp(new WireError("membership", "connection", text));
  }

  /** The session is over. */
  close(reason: string, track: (task: Promise<void>) => void): void {
    this.#closed = reason;
    for (const { giveUp } of this.#joiners.splice(0)) {
      giveUp(new WireError("membership", "connection", reason));
    }
    for (const port of [...this.#ports.values()]) track(port.refuse(reason));
  }
}

/** Why a rank cannot have the consensus here. */
export function nothingHeld(rounds: number, peer: string): WireError {
  return new WireError(
    "membership",
    "connection",
    `giving the consensus to ${peer}: ${rounds} rounds have been, and this relay took part in none ` +
      "whose result it has; connect without asking for it",
  );
}
