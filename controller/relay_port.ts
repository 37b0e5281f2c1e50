/**
 * The controller's end of one relay's channel.
 *
 * @module
 */
import { RecordReader, RecordWriter } from "../frames/records.ts";
import type { Arriving } from "../frames/receive.ts";
import type { FrameSlot } from "../frames/slot.ts";
import { type Connection, TransportError } from "../transport/connection.ts";
import { Link } from "../transport/link.ts";
import type { ControlMessage, HelloPlace } from "../wire/control.ts";
import { WireError } from "../wire/errors.ts";
import { CHANNEL_MAGIC_BYTES, decodeChannelMagic } from "../wire/mux.ts";
import { NONCE_BYTES, sealKey, Seals } from "../wire/seal.ts";
import { encodeRefusal } from "../wire/refusal.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import type { Tagger } from "../workers/tagger.ts";
import type { Host } from "./membership.ts";
import type { RelayTerms } from "./relay_terms.ts";

/** How long a refused relay gets to read why, in milliseconds. */
const LAST_WORD_MS = 2_000;

type Hello = ControlMessage & { type: "hello" };

/** What a port needs of its controller. */
export interface RelayHost {
  readonly tagger: Tagger;
  readonly terms: RelayTerms;

  /**
   * Takes a relay in, and calls {@link RelayPort.welcome} once it is.
   *
   * @throws {WireError} when it is refused.
   */
  hello(port: RelayPort, hello: ControlMessage & { type: "hello" }): Promise<void>;
  /** Settles when a host that came in the middle of a round may be listened to; undefined if it may. */
  entrance(port: RelayPort): Promise<void> | undefined;
  /**
   * The relay says anew which ranks it carries.
   *
   * @param narrow Whether all of them take results that carry bf16.
   * @throws {WireError} when that cannot be.
   */
  renew(port: RelayPort, ranks: readonly number[], narrow: boolean): void;
  /**
   * A frame starts to arrive: gives the slot for it.
   *
   * @throws {WireError} when none may come now.
   */
  expectFrame(port: RelayPort): FrameSlot;
  /** Bytes of a frame are there that are not verified yet. */
  arriving(port: RelayPort, ...what: Parameters<Arriving>): void;
  /**
   * Takes a verified frame.
   *
   * @throws {WireError} when it cannot be folded, whatever the others send.
   */
  deliver(port: RelayPort, header: FrameHeader): void;
  /**
   * A rank of this relay left.
   *
   * @throws {WireError} when it was not this relay's.
   */
  rankExit(port: RelayPort, rank: number): void;
  /** The channel is closed; `refused` when it is us who close it, for what the relay sent or left out. */
  left(port: RelayPort, reason: string, refused: boolean): void;
}

/** One relay's channel, from its first byte to its last. */
export class RelayPort {
  readonly #link: Link;
  readonly #controller: RelayHost;
  readonly #reader: RecordReader;
  readonly #writer: RecordWriter;
  readonly #done = Promise.withResolvers<void>();
  #host: Host | undefined;
  #instance: number | undefined;
  #welcome: Promise<void> | undefined;
  #gone = false;

  constructor(connection: Connection, controller: RelayHost) {
    this.#link = new Link(connection);
    this.#controller = controller;
    this.#reader = new RecordReader(this.#link, { ...controller.terms, tagger: controller.tagger });
    this.#writer = new RecordWriter(this.#link, controller.terms.salt);
  }

  /** The host at the other end, once its Hello was taken. */
  get host(): Host | undefined {
    return this.#host;
  }

  /** The number of the relay's life, where it says one. */
  get instance(): number | undefined {
    return this.#instance;
  }

  /** Whether the channel is sealed. */
  get sealed(): boolean {
    return this.#writer.sealed;
  }

  /** Whether the channel has ended. */
  get gone(): boolean {
    return this.#gone;
  }

  /** The address of the other end. */
  get peer(): string {
    return this.#link.peer;
  }

  /**
   * The relay is in: this is answered before anything else is sent.
   *
   * @param place What became of its last frame; only for relays that ask.
   */
  welcome(host: Host, place: HelloPlace | undefined): void {
    this.#host = host;
    this.#welcome = this.#writer.control({
      type: "hello_ack",
      ...(place === undefined ? {} : { place }),
    });
    this.#welcome.catch(() => {});
    this.#link.welcome();
  }

  /** Serves the channel until it ends. Never rejects for what the peer does. */
  async run(): Promise<void> {
    try {
      await this.#link.within(
        this.#controller.terms.handshakeMs,
        "waiting for a relay's Hello",
        () => this.#hello(),
      );
      while (await this.#readRecord());
      this.#leave("it closed its channel");
    } catch (error) {
      if (error instanceof WireError) await this.refuse(error.message);
      else if (error instanceof TransportError) this.#leave(error.message);
      else throw error;
    } finally {
      await this.#link.parting;
      this.#link.close();
      this.#done.resolve();
    }
  }

  /**
   * Sends a round's result.
   *
   * @param record The whole record; unchanged until this has settled.
   */
  async sendResult(record: Uint8Array, round: number): Promise<void> {
    await this.#send(
      `sending the result of round ${round}`,
      () => this.#writer.frame(record, `the result of round ${round}`),
    );
  }

  /** Tells the relay to stop waiting for a rank. Never rejects. */
  async declareDead(rank: number): Promise<void> {
    await this.#send(
      `declaring rank ${rank} dead`,
      () => this.#writer.control({ type: "declare_dead", rank }),
    );
  }

  /** Tells the relay why it must go, and closes. Never rejects. */
  async refuse(reason: string): Promise<void> {
    this.#leave(reason, true);
    await this.#link.closeAfter(encodeRefusal(reason, this.#controller.terms.salt), LAST_WORD_MS);
  }

  /** Closes the channel at once, unless a last word is on its way. */
  abandon(): void {
    if (this.#link.parting === undefined) this.#link.close();
  }

  /** Settles once nothing of this port reads or writes any more. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  async #send(what: string, write: () => Promise<void>): Promise<void> {
    try {
      await this.#link.within(this.#controller.terms.recordMs, what, write);
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      this.#leave(error.message);
    }
  }

  async #hello(): Promise<void> {
    const magic = new Uint8Array(CHANNEL_MAGIC_BYTES);
    if (!await this.#link.readFully(magic, "the channel magic")) {
      throw new TransportError("closed", `${this.peer} closed without a word`);
    }
    decodeChannelMagic(magic);
    const offer = await this.#readHello();
    const hello = offer.nonce === undefined ? offer : await this.#seal(offer.nonce);
    if (offer.nonce === undefined && this.#controller.terms.requireNonce) {
      throw new WireError(
        "handshake",
        "connection",
        `the relay at ${this.peer} does not seal its channel, which --require-nonce asks for`,
      );
    }
    this.#instance = hello.standing?.instance;
    await this.#controller.hello(this, hello);
    await this.#welcome;
  }

  /** Agrees on seals, and reads the Hello that counts: the one before could be a recorded one. */
  async #seal(offered: string): Promise<Hello> {
    const { salt } = this.#controller.terms;
    const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
    await this.#writer.control({ type: "nonce", nonce: nonce.toHex() });
    const key = sealKey(salt, Uint8Array.fromHex(offered), nonce);
    this.#writer.addSeals(new Seals(key, "down"));
    this.#reader.expectSeals(new Seals(key, "up"));
    return await this.#readHello();
  }

  async #readHello(): Promise<Hello> {
    const record = await this.#reader.next("host_frame", () => {
      throw new WireError("message", "connection", `${this.peer} sent a frame before Hello`);
    });
    if (record === null) {
      throw new TransportError("closed", `${this.peer} closed without a Hello`);
    }
    if (record.kind !== "control" || record.message.type !== "hello") {
      throw new WireError(
        "message",
        "connection",
        `reading the first record of ${this.peer}: something else than Hello came`,
      );
    }
    return record.message;
  }

  /** Reads one record; false when the relay closed instead of sending one. */
  async #readRecord(): Promise<boolean> {
    const controller = this.#controller;
    // What it sends belongs to the next round: it stays in the socket until that one gathers.
    await controller.entrance(this);
    const record = await this.#reader.next(
      "host_frame",
      () => controller.expectFrame(this),
      (...what) => controller.arriving(this, ...what),
    );
    if (record === null) return false;
    if (this.#gone) return true;
    if (record.kind === "frame") controller.deliver(this, record.header);
    else if (record.kind === "control") {
      const { message } = record;
      if (message.type === "rank_exit") controller.rankExit(this, message.rank);
      else if (message.type === "hello") {
        controller.renew(this, message.ranks, message.narrow === true);
      } else {
        throw new WireError(
          "message",
          "connection",
          `reading from host ${JSON.stringify(this.#host!.name)}: a ${message.type} came, which ` +
            "only goes the other way",
        );
      }
    }
    return true;
  }

  #leave(reason: string, refused = false): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#controller.left(this, reason, refused);
  }
}
