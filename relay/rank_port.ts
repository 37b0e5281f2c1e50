/**
 * The relay's end of one rank's connection: lets the rank in, reads its frames, writes its results.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import type { NonFiniteScreen } from "../fold/nonfinite.ts";
import { checkFoldable } from "../fold/schema.ts";
import { type Arriving, receiveFrame } from "../frames/receive.ts";
import { SealedPen } from "../frames/seals.ts";
import type { Bytes, FrameSlot } from "../frames/slot.ts";
import type { Terms } from "../serve/terms.ts";
import { type Connection, TransportError } from "../transport/connection.ts";
import { Link } from "../transport/link.ts";
import { WireError, type WireErrorCode } from "../wire/errors.ts";
import {
  decodeHandshake,
  encodeAck,
  encodeChallengeHeader,
  HANDSHAKE_BYTES,
  PROTOCOL_BF16,
  PROTOCOL_F32,
  type RankHandshake,
  SEALED,
} from "../wire/handshake.ts";
import { CATCH_UP, encodeCatchUp } from "../wire/catch_up.ts";
import { decodeLength, LENGTH_BYTES } from "../wire/length.ts";
import { TAG_BYTES } from "../wire/limits.ts";
import { tagsEqual } from "../wire/mac.ts";
import { encodeRefusal } from "../wire/refusal.ts";
import type { FrameHeader } from "../wire/round_frame.ts";
import { NONCE_BYTES, SEAL_BYTES, sealKey, Seals } from "../wire/seal.ts";
import type { Tagger } from "../workers/tagger.ts";

/** How long a refused rank gets to read why, in milliseconds. */
const LAST_WORD_MS = 2_000;

/** For what a peer is refused: what its bytes had wrong, or what the relay decides. */
export type RefusalCause = WireErrorCode | "decision";

/** What a port needs of its relay. */
export interface RankHost {
  readonly salt: Uint8Array;
  readonly tagger: Tagger;
  readonly ceiling: number;
  readonly terms: Terms;
  /** Looks for values that are not finite. */
  readonly screen: NonFiniteScreen;
  /** How long one frame may take from its first byte to its last, in milliseconds. */
  readonly frameMs: number;

  /**
   * Decides on a handshake, and calls {@link RankPort.enter} once the rank takes part.
   *
   * @throws {WireError} when it is refused.
   */
  admit(handshake: RankHandshake, port: RankPort): Promise<void>;
  /** The slot for this rank's frames. */
  slot(rank: number): FrameSlot;
  /** The length of a rank's frame is there, and the frame follows. */
  begins(rank: number): void;
  /** Bytes of a rank's frame are there that are not verified yet. */
  arriving(rank: number, ...what: Parameters<Arriving>): void;
  /** A rank's frame is no longer what arrived: so many of its values count as 0. */
  altered(rank: number, values: number): void;
  /** Whether a frame of this rank may come now. */
  maySend(rank: number): boolean;
  /** Takes a frame that was verified and checked, which lies in the rank's slot. */
  deliver(rank: number, header: FrameHeader): void;
  /**
   * The port is closed; `clean` when the rank left between rounds of its own accord.
   *
   * @param refused What for, when it is us who close it.
   */
  left(port: RankPort, clean: boolean, reason: string, refused?: RefusalCause): void;
}

/** The consensus, as a relay has it. */
export interface HeldConsensus {
  /** How many rounds the session has had; 0: none. */
  readonly rounds: number;
  /** The frame of the last Model round's result; undefined where it is not to be had. */
  readonly frame: Bytes | undefined;
}

/** One rank's connection, from its first byte to its last. */
export class RankPort {
  readonly #link: Link;
  readonly #pen: SealedPen;
  readonly #host: RankHost;
  readonly #done = Promise.withResolvers<void>();
  readonly #prefix = new Uint8Array(LENGTH_BYTES);
  /** The read of the first frame's prefix, which starts early. */
  #first: Promise<boolean> | undefined;
  #rank: number | undefined;
  #version = PROTOCOL_F32;
  #asks = false;
  #up: Seals | undefined;
  #down: Seals | undefined;
  #consensus: HeldConsensus | undefined;
  readonly #caughtUp = Promise.withResolvers<void>();
  #gone = false;

  constructor(connection: Connection, host: RankHost) {
    this.#link = new Link(connection);
    this.#pen = new SealedPen(this.#link);
    this.#host = host;
  }

  /** The rank at the other end, once it was let in. */
  get rank(): number | undefined {
    return this.#rank;
  }

  /** Whether the rank takes results that carry bf16. */
  get narrow(): boolean {
    return this.#version >= PROTOCOL_BF16;
  }

  /** Whether the rank asks for the consensus before its first round. */
  get asks(): boolean {
    return this.#asks;
  }

  /**
   * Gives the rank the consensus as soon as it is let in.
   *
   * @returns Settles when the frame is not read any more.
   */
  catchUp(consensus: HeldConsensus): Promise<void> {
    this.#consensus = consensus;
    return Promise.race([this.#caughtUp.promise, this.#done.promise]);
  }

  /** The address of the other end. */
  get peer(): string {
    return this.#link.peer;
  }

  /** Whether the rank has left, or was told to go. */
  get gone(): boolean {
    return this.#gone;
  }

  /** Settles once nothing of this port reads or writes any more. */
  get done(): Promise<void> {
    return this.#done.promise;
  }

  /** The rank takes part from here on: if it leaves, its host is told as of that rank. */
  enter(rank: number): void {
    this.#rank = rank;
  }

  /** Closes the connection at once, unless a last word is on its way. */
  abandon(): void {
    if (this.#link.parting === undefined) this.#link.close();
  }

  /** Serves the connection until it ends. Never rejects for what the peer does. */
  async run(): Promise<void> {
    try {
      await this.#letIn();
      while (await this.#readFrame());
      this.#leave(this.#host.maySend(this.#rank!), "it closed its connection");
    } catch (error) {
      if (error instanceof WireError) await this.refuse(error.message, error.code);
      else if (error instanceof TransportError) this.#leave(false, error.message);
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
   * @param prefixed The length prefix and the frame; unchanged until this has settled.
   */
  async sendResult(prefixed: Uint8Array, round: number): Promise<void> {
    const what = `the result of round ${round}`;
    try {
      await this.#link.within(
        this.#host.frameMs,
        `sending ${what} to rank ${this.#rank}`,
        () => this.#write(prefixed, what),
      );
    } catch (error) {
      if (!(error instanceof TransportError)) throw error;
      this.#leave(false, error.message);
    }
  }

  /** Tells the rank why it must go, and closes. Never rejects. */
  async refuse(reason: string, cause: RefusalCause = "decision"): Promise<void> {
    this.#leave(false, reason, cause);
    await this.#link.closeAfter(encodeRefusal(reason, this.#host.salt), LAST_WORD_MS);
  }

  async #letIn(): Promise<void> {
    const bytes = new Uint8Array(HANDSHAKE_BYTES);
    const there = await this.#link.within(
      this.#host.terms.handshakeMs,
      "waiting for a rank's handshake",
      () => this.#link.readFully(bytes, "a rank's handshake"),
    );
    if (!there) {
      throw new TransportError("closed", `${this.peer} closed without a handshake`);
    }
    const handshake = decodeHandshake(bytes, [PROTOCOL_F32, PROTOCOL_BF16], CATCH_UP | SEALED);
    const { version, rank } = handshake;
    this.#asks = (version & CATCH_UP) !== 0;
    this.#version = version & ~(CATCH_UP | SEALED);
    if ((version & SEALED) !== 0) await this.#challenge(bytes, version);
    else if (this.#host.terms.requireNonce) {
      throw new WireError(
        "handshake",
        "connection",
        `letting in rank ${rank} at ${this.peer}: it does not seal its connection, which ` +
          "--require-nonce asks for; connect it with the option seal",
      );
    }
    const admitted = this.#host.admit(handshake, this);
    this.#link.welcome();
    await this.#unlessGone(admitted, rank);
    const ack = encodeAck(version);
    const seal = this.#down?.next(ack) ?? new Uint8Array(0);
    await this.#link.writeFully(Uint8Array.from([...ack, ...seal]), "the answer to a handshake");
    if (this.#consensus !== undefined) await this.#tellConsensus(this.#consensus);
  }

  /** Has the rank prove that it has the salt, on this very connection. */
  async #challenge(handshake: Uint8Array, version: number): Promise<void> {
    const link = this.#link;
    const what = "a rank's proof that it has the salt";
    const theirs = new Uint8Array(NONCE_BYTES);
    const proof = new Uint8Array(SEAL_BYTES);
    const there = await link.within(
      this.#host.terms.handshakeMs,
      `waiting for ${what}`,
      async () => {
        if (!await link.readFully(theirs, "a rank's nonce")) return false;
        const nonce = crypto.getRandomValues(new Uint8Array(NONCE_BYTES));
        const key = sealKey(this.#host.salt, theirs, nonce, "rank");
        this.#up = new Seals(key, "up");
        this.#down = new Seals(key, "down");
        const header = encodeChallengeHeader(version);
        const challenge = new Uint8Array(header.length + nonce.length);
        challenge.set(header);
        challenge.set(nonce, header.length);
        await link.writeFully(challenge, "a challenge");
        return await link.readFully(proof, what);
      },
    );
    if (!there) throw new TransportError("closed", `${this.peer} closed without ${what}`);
    if (tagsEqual(this.#up!.next(handshake), proof)) return;
    throw new WireError(
      "mac",
      "connection",
      `reading ${what}, at ${this.peer}: it is wrong; the salts of the two processes differ, or the ` +
        "connection is a recorded one",
    );
  }

  async #tellConsensus({ rounds, frame }: HeldConsensus): Promise<void> {
    const what = `the consensus, to rank ${this.#rank}`;
    const header = encodeCatchUp({ rounds, length: frame?.length ?? 0 }, this.#host.salt);
    await this.#link.within(this.#host.frameMs, `sending ${what}`, async () => {
      await this.#write(header, what);
      if (frame !== undefined) await this.#write(frame, what);
    });
    this.#caughtUp.resolve();
  }

  /** Writes what ends with its own tag, sealed where the connection is. */
  #write(bytes: Uint8Array, what: string): Promise<void> {
    const tagAt = bytes.length - TAG_BYTES;
    const seal = this.#down?.next(bytes.subarray(tagAt));
    return this.#pen.write(bytes, tagAt, seal, what);
  }

  /** Waits until a rank is let in, or hangs up: then its place must not stay taken. */
  async #unlessGone(admitted: Promise<void>, rank: number): Promise<void> {
    const first = this.#link.readFully(this.#prefix, `a frame of rank ${rank}`);
    const gone = new Promise<never>((_, reject) => {
      first.then((there) => {
        if (!there) {
          const text = `rank ${rank} closed its connection before it was let in`;
          reject(new TransportError("closed", text));
        } else if (this.#asks) {
          // Its end would not be heard any more, however long it waits.
          const text =
            `letting in rank ${rank} at ${this.peer}: it asks for the consensus, and sent ` +
            "a frame before it had it";
          reject(new WireError("membership", "connection", text));
        }
      }, reject);
    });
    this.#first = first;
    await Promise.race([admitted, gone]);
  }

  /** Reads one frame; false when the rank closed instead of sending one. */
  async #readFrame(): Promise<boolean> {
    const rank = this.#rank!;
    const prefix = this.#prefix;
    const there = this.#first ?? this.#link.readFully(prefix, `a frame of rank ${rank}`);
    this.#first = undefined;
    if (!await there) return false;
    const host = this.#host;
    if (!host.maySend(rank)) {
      throw new WireError(
        "membership",
        "connection",
        `rank ${rank} sent a second frame before the round of its first one was over`,
      );
    }
    const length = decodeLength(prefix, host.ceiling);
    host.begins(rank);
    const header = await this.#inTime(this.#receive(rank, length));
    await this.#check(rank, header);
    if (!this.#gone) host.deliver(rank, header);
    return true;
  }

  async #receive(rank: number, length: number): Promise<FrameHeader> {
    const host = this.#host;
    const what = `the frame of rank ${rank}`;
    const slot = host.slot(rank);
    return await receiveFrame(this.#link, slot, length, what, {
      tagger: host.tagger,
      ceiling: host.ceiling,
      seals: this.#up,
      arriving: (...bytes) => host.arriving(rank, ...bytes),
    });
  }

  /** Refuses a frame that cannot be folded, whatever the others send, or holds what it must not. */
  async #check(rank: number, header: FrameHeader): Promise<void> {
    const who = `rank ${rank}`;
    checkFoldable(header, who, this.#version);
    const { frame: bytes } = this.#host.slot(rank);
    const replaced = await this.#host.screen.screen({ bytes, header }, who);
    if (replaced === 0) return;
    this.#host.altered(rank, replaced);
    getLogger(["tierfold", "relay"]).warn(
      "rank {rank} sent {count} values that are NaN or infinite: they count as 0",
      { rank, count: replaced },
    );
  }

  /** Waits for a frame that has begun to arrive; one that takes too long is refused. */
  async #inTime(frame: Promise<FrameHeader>): Promise<FrameHeader> {
    const { frameMs } = this.#host;
    const timer = setTimeout(() => {
      void this.refuse(`reading a frame of rank ${this.#rank}: it took longer than ${frameMs} ms`);
    }, frameMs);
    try {
      return await frame;
    } finally {
      clearTimeout(timer);
    }
  }

  #leave(clean: boolean, reason: string, refused?: RefusalCause): void {
    if (this.#gone) return;
    this.#gone = true;
    // A refused rank may still be heard until it has read why; what it says no longer counts.
    this.#host.left(this, clean, reason, refused);
  }
}
