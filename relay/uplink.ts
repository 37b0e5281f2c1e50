/**
 * The relay's channel to the controller.
 *
 * @module
 */
import { RecordReader, RecordWriter } from "../frames/records.ts";
import type { FrameSlot } from "../frames/slot.ts";
import { TransportError } from "../transport/connection.ts";
import { Link } from "../transport/link.ts";
import type { Network } from "../transport/network.ts";
import type { Address } from "../transport/tcp.ts";
import type { ControlMessage, HelloPlace } from "../wire/control.ts";
import { WireError } from "../wire/errors.ts";
import { encodeChannelMagic } from "../wire/mux.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { NONCE_BYTES, sealKey, Seals } from "../wire/seal.ts";
import type { Tagger } from "../workers/tagger.ts";

/** What the channel needs of its relay. */
export interface UplinkEvents {
  /**
   * A result starts to arrive: gives the slot for it.
   *
   * @throws {WireError} when no result is due.
   */
  expectResult(): FrameSlot;
  /** A round's result has arrived and is authentic. */
  result(header: FrameHeader): void;
  /** The controller says to stop waiting for a rank. */
  declareDead(rank: number): void;
}

/** How to open the channel. */
export interface UplinkOptions {
  network: Network;
  controller: Address;
  /** What Hello says; asked once the controller is reached. */
  hello: () => ControlMessage & { type: "hello" };
  salt: Uint8Array;
  /** Whether a controller that does not seal the channel is refused. */
  requireNonce: boolean;
  tagger: Tagger;
  ceiling: number;
  /** How long to try to reach the controller and be let in, in milliseconds. */
  connectMs: number;
  /** How long one record may take from its first byte to its last, in milliseconds. */
  recordMs: number;
}

/** An open channel: the controller has answered Hello. */
export class Uplink {
  readonly #link: Link;
  readonly #reader: RecordReader;
  readonly #writer: RecordWriter;
  #place: HelloPlace | undefined;

  private constructor(link: Link, options: UplinkOptions) {
    this.#link = link;
    this.#reader = new RecordReader(link, options);
    this.#writer = new RecordWriter(link, options.salt);
  }

  /**
   * Connects, says which ranks this host carries, and waits for the answer.
   *
   * @throws {TransportError} when the controller cannot be reached in time, or refuses us.
   * @throws {WireError} when what answers is not a controller of our session.
   */
  static async open(options: UplinkOptions, signal: AbortSignal): Promise<Uplink> {
    const started = Date.now();
    const connection = await options.network.connect(options.controller, "the controller", {
      deadlineMs: options.connectMs,
      signal,
    });
    const link = new Link(connection);
    const uplink = new Uplink(link, options);
    const left = Math.max(options.connectMs - (Date.now() - started), 1_000);
    const stop = () => link.close();
    signal.addEventListener("abort", stop);
    try {
      await link.within(
        left,
        "waiting for the controller's HelloAck",
        () => uplink.#introduce(options),
      );
      return uplink;
    } catch (error) {
      link.close();
      throw error;
    } finally {
      signal.removeEventListener("abort", stop);
    }
  }

  /** What the controller says of our standing; undefined where it does not speak of rounds. */
  get place(): HelloPlace | undefined {
    return this.#place;
  }

  /** Whether the channel is sealed. */
  get sealed(): boolean {
    return this.#writer.sealed;
  }

  /** The controller's address. */
  get peer(): string {
    return this.#link.peer;
  }

  /**
   * Reads what the controller sends until it closes.
   *
   * @throws {TransportError} when the channel ends or breaks.
   * @throws {WireError} when the controller sends what it must not.
   */
  async run(events: UplinkEvents): Promise<never> {
    for (;;) {
      const record = await this.#reader.next("broadcast", () => events.expectResult());
      if (record === null) {
        throw new TransportError("closed", `the controller at ${this.peer} closed the channel`);
      }
      if (record.kind === "frame") events.result(record.header);
      else if (record.kind === "control") this.#control(record.message, events);
      // Data records are for ranks that speak another protocol; ours have no way to take them.
    }
  }

  /**
   * Sends the host's fold.
   *
   * @param record The whole record; unchanged until this has settled.
   */
  sendFrame(record: Uint8Array): Promise<void> {
    return this.#writer.frame(record, "the host's frame");
  }

  /** Says that a rank's connection closed. */
  rankExit(rank: number): Promise<void> {
    return this.#writer.control({ type: "rank_exit", rank });
  }

  /**
   * Says which ranks this host carries; anew after one came back, or when `narrow` has changed.
   *
   * @param narrow Whether all of them take results that carry bf16.
   */
  hello(host: string, ranks: readonly number[], narrow: boolean): Promise<void> {
    return this.#writer.control({ type: "hello", host, ranks: [...ranks], narrow });
  }

  /** Closes the channel. */
  close(): void {
    this.#link.close();
  }

  #control(message: ControlMessage, events: UplinkEvents): void {
    if (message.type === "declare_dead") events.declareDead(message.rank);
    else if (message.type !== "hello_ack") {
      throw new WireError(
        "message",
        "connection",
        `reading from the controller at ${this.peer}: a ${message.type} came, which only goes the ` +
          "other way",
      );
    }
  }

  async #introduce(options: UplinkOptions): Promise<void> {
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    await this.#link.writeFully(encodeChannelMagic(), "the channel magic");
    await this.#writer.control({ ...options.hello(), nonce: nonce.toHex() });
    const first = await this.#answer();
    if (first.type === "nonce") {
      const key = sealKey(options.salt, nonce, Uint8Array.fromHex(first.nonce));
      this.#writer.addSeals(new Seals(key, "up"));
      this.#reader.expectSeals(new Seals(key, "down"));
      // Only now it counts: the one before could be a recorded one.
      await this.#writer.control(options.hello());
    } else if (options.requireNonce) {
      throw new WireError(
        "handshake",
        "connection",
        `the controller at ${this.peer} does not seal its channels, which --require-nonce asks for`,
      );
    }
    const answer = first.type === "nonce" ? await this.#answer() : first;
    if (answer.type !== "hello_ack") throw this.#unexpected();
    this.#place = answer.place;
  }

  #unexpected(): WireError {
    return new WireError(
      "message",
      "connection",
      `waiting for HelloAck of the controller at ${this.peer}: something else came`,
    );
  }

  async #answer(): Promise<ControlMessage> {
    const answer = await this.#reader.next("broadcast", () => {
      throw new WireError("message", "connection", "a result came before HelloAck");
    });
    if (answer === null) {
      throw new TransportError(
        "closed",
        `the controller at ${this.peer} closed the channel at Hello; its log says why`,
      );
    }
    if (answer.kind !== "control") throw this.#unexpected();
    return answer.message;
  }
}
