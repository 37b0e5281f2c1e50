/**
 * The relay's tie to the controller, across the channels that carry it.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { FrameSlot } from "../frames/slot.ts";
import { TransportError } from "../transport/connection.ts";
import { tcp } from "../transport/network.ts";
import type { Tagger } from "../workers/tagger.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import type { RelayObserver } from "./observer.ts";
import type { RelaySettings } from "./settings.ts";
import { Standing } from "./standing.ts";
import { Uplink, type UplinkEvents } from "./uplink.ts";

/** First pause before a lost channel is opened again; it doubles up to {@link LAST_PAUSE_MS}. */
const FIRST_PAUSE_MS = 50;
const LAST_PAUSE_MS = 2_000;

/** What the tie needs of its relay. */
export interface LifelineHost extends UplinkEvents {
  /** Whether nobody is here and nothing is owed to anybody. */
  readonly vacant: boolean;
  /** The same, and nobody is hoped for. */
  readonly deserted: boolean;
  /** What Hello says: the ranks carried, and whether all take bf16. */
  introduction(): { ranks: readonly number[]; narrow: boolean };
  /**
   * A channel is open.
   *
   * @param again The frame whose result is due must be sent once more.
   * @param underWay This relay has come to a session that has had rounds without it.
   */
  connected(again: boolean, underWay: boolean): void;
}

/**
 * One channel at a time.
 *
 *     connecting --HelloAck--> up --channel breaks--> away --HelloAck--> up
 *         |                     |                       |
 *         +----- refused, too late, or nobody is left --+--> over
 */
export class Lifeline implements UplinkEvents {
  readonly #settings: RelaySettings;
  readonly #tagger: Tagger;
  readonly #host: LifelineHost;
  readonly #observer: RelayObserver | undefined;
  readonly #log;
  readonly #standing: Standing;
  readonly #stop = new AbortController();
  #uplink: Uplink | undefined;
  #over = false;
  /** Channels lost since the last result. */
  #losses = 0;

  constructor(
    settings: RelaySettings,
    tagger: Tagger,
    host: LifelineHost,
    observer: RelayObserver | undefined,
  ) {
    this.#observer = observer;
    this.#settings = settings;
    this.#tagger = tagger;
    this.#host = host;
    this.#log = getLogger(["tierfold", "relay"]).with({ host: settings.host });
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    this.#standing = new Standing(low! + (high! & 0xffff) * 2 ** 32);
  }

  /** Whether a channel is open. */
  get up(): boolean {
    return this.#uplink !== undefined;
  }

  /** Whether the open channel is sealed. */
  get sealed(): boolean {
    return this.#uplink?.sealed === true;
  }

  /** Whether there will be no channel any more. */
  get over(): boolean {
    return this.#over;
  }

  /** How many rounds the controller has had, as far as this relay knows. */
  get rounds(): number {
    return this.#standing.round;
  }

  /** Whether the result of a frame is due. */
  get pending(): boolean {
    return this.#standing.pending;
  }

  /**
   * Keeps a channel open until nobody is left or {@link Lifeline.close} is called.
   *
   * @throws {TransportError} when the controller cannot be had in time, or refuses us.
   * @throws {WireError} when what answers is not a controller of our session.
   */
  async run(): Promise<void> {
    try {
      let uplink = await this.#open(this.#settings.connectDeadlineMs);
      for (;;) {
        this.#uplink = uplink;
        if (this.#stop.signal.aborted) return;
        const { fresh } = this.#standing;
        const again = this.#standing.acknowledge(uplink.place);
        this.#log.info("connected to the controller at {peer}", { peer: uplink.peer });
        this.#observer?.connected(uplink.peer);
        this.#host.connected(again, fresh && this.#standing.round > 0);
        const reason = await this.#serve(uplink);
        if (reason === undefined) return;
        const next = await this.#reopen(reason).catch((error) => this.#unlessVacant(error));
        if (next === undefined) return;
        uplink = next;
      }
    } finally {
      this.close();
    }
  }

  /** Sends the host's fold; it counts as sent even where it has to be sent again later. */
  async ship(record: Uint8Array): Promise<void> {
    this.#standing.ship();
    await this.#say((uplink) => uplink.sendFrame(record));
  }

  /** Says that a rank's connection closed. */
  async exit(rank: number): Promise<void> {
    await this.#say((uplink) => uplink.rankExit(rank));
  }

  /** Says anew which ranks are here, and whether all of them take bf16. */
  async introduce(): Promise<void> {
    const { ranks, narrow } = this.#host.introduction();
    await this.#say((uplink) => uplink.hello(this.#settings.host, ranks, narrow));
  }

  /** Ends the channel, and opens no other. */
  close(): void {
    this.#over = true;
    this.#stop.abort();
    this.#uplink?.close();
    this.#uplink = undefined;
  }

  expectResult(): FrameSlot {
    return this.#host.expectResult();
  }

  result(header: FrameHeader): void {
    this.#standing.result();
    this.#losses = 0;
    this.#host.result(header);
  }

  declareDead(rank: number): void {
    this.#host.declareDead(rank);
  }

  /** What is said into a breaking channel is lost with it: the reader of the channel sees why. */
  async #say(what: (uplink: Uplink) => Promise<void>): Promise<void> {
    const uplink = this.#uplink;
    if (uplink === undefined) return;
    try {
      await what(uplink);
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      uplink.close();
    }
  }

  /** Reads until the channel breaks; gives the reason, or undefined when nobody here needs another. */
  async #serve(uplink: Uplink): Promise<TransportError | undefined> {
    try {
      return await uplink.run(this);
    } catch (error) {
      uplink.close();
      this.#uplink = undefined;
      if (this.#stop.signal.aborted || this.#host.deserted) return undefined;
      const { reconnectDeadlineMs = 0 } = this.#settings;
      if (isPassing(error) && reconnectDeadlineMs > 0) return error;
      return this.#unlessVacant(error);
    }
  }

  /** Where nobody is here, the end of the session is nobody's loss: throws only where somebody is. */
  #unlessVacant(error: unknown): undefined {
    const gone = isPassing(error) ||
      error instanceof TransportError && error.code === "unreachable";
    if (!gone || !this.#host.vacant) throw error;
  }

  /** Opens a channel again, with growing pauses until the deadline. */
  async #reopen({ message }: TransportError): Promise<Uplink> {
    const { reconnectDeadlineMs = 0 } = this.#settings;
    const end = Date.now() + reconnectDeadlineMs;
    this.#observer?.disconnected(message);
    this.#log.warn("lost the controller: {message}; trying for {ms} ms to reach it again", {
      message,
      ms: reconnectDeadlineMs,
    });
    for (;;) {
      await this.#pause(this.#losses++);
      try {
        return await this.#open(Math.max(end - Date.now(), 1));
      } catch (error) {
        if (isPassing(error) && Date.now() < end) continue;
        if (!(error instanceof TransportError) || error.code === "ended") throw error;
        throw new TransportError(
          error.code,
          `the controller was lost (${message}) and not reached again: ${error.message}`,
          { cause: error },
        );
      }
    }
  }

  #open(connectMs: number): Promise<Uplink> {
    const settings = this.#settings;
    return Uplink.open({
      network: settings.controllerNetwork ?? tcp,
      controller: settings.controller,
      hello: () => {
        const { ranks, narrow } = this.#host.introduction();
        const standing = this.#standing.hello();
        const { host, worldSize } = settings;
        return { type: "hello", host, ranks: [...ranks], narrow, standing, worldSize };
      },
      salt: settings.salt,
      requireNonce: settings.terms?.requireNonce ?? false,
      tagger: this.#tagger,
      ceiling: settings.frameCeilingBytes,
      connectMs,
      recordMs: settings.roundDeadlineMs,
    }, this.#stop.signal);
  }

  #pause(losses: number): Promise<void> {
    const { signal } = this.#stop;
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(FIRST_PAUSE_MS * 2 ** losses, LAST_PAUSE_MS));
      signal.addEventListener("abort", done);
    });
  }
}

/** Whether a new channel may do better. */
function isPassing(error: unknown): error is TransportError {
  return error instanceof TransportError && (error.code === "closed" || error.code === "deadline");
}
