/**
 * What a receiver of DWE fragments makes of each of them.
 *
 * @module
 */
import {
  checkDweStateHash,
  decodeDwe,
  DweError,
  type DweErrorCode,
  type DweFragment,
  sealDwe,
  verifyDwe,
} from "../wire/dwe.ts";
import type { KeyRing } from "./keys.ts";
import { formatTag, parseTag, type PartTag, sequenceOwner, type SessionTag } from "./session.ts";
import { type DweTelemetry, newTelemetry } from "./telemetry.ts";
import { applyChanges, type LiveLayer, SnapshotBuilder } from "./weights.ts";

/** Most sequences remembered, one per session; the one not heard of for longest is forgotten. */
const MAX_SESSIONS = 1_024;
/** Most bytes of weights, unless told: those of a frame at its ceiling. */
const DEFAULT_MAX_BYTES = 1024 ** 3;

/** A consensus that arrived whole. */
export interface FollowedRound {
  /** The publisher's run. */
  readonly sid: string;
  /** Which of its published consensuses it is, from 1. */
  readonly version: number;
  /** Whether a snapshot or changes brought it. */
  readonly by: "snapshot" | "delta";
}

/** What became of a fragment. */
export interface Verdict {
  /** Applied: it changed the weights. Ignored: believed, but of no use now. Rejected: refused. */
  readonly outcome: "applied" | "ignored" | "rejected";
  /** Why it was refused. */
  readonly error?: DweError;
  /** Whether its sender is one of the fleet. */
  readonly authentic: boolean;
  /** Whether its sender should lose the connection. */
  readonly close: boolean;
  /** A fragment to send back. */
  readonly reply?: Uint8Array<ArrayBuffer>;
  /** The consensus that this fragment completed. */
  readonly round?: FollowedRound;
}

/** How a {@link DeltaFollower} starts. */
export interface FollowerOptions {
  /** The fleet's keys, asked for every fragment. */
  readonly ring: Pick<KeyRing, "keys">;
  /**
   * Weights to add every believed change to, from whatever sender, as plain DWE does. Without them the
   * follower is a replica: it follows one Tierfold publisher, starting with a snapshot.
   */
  readonly layers?: readonly LiveLayer[] | undefined;
  /** Most bytes of weights in a snapshot; 1 GiB unless given. */
  readonly maxBytes?: number | undefined;
  /** Draws 16 hex digits. */
  readonly nonce?: () => string;
}

function randomNonce(): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, 16);
}

/** Reasons that say nothing against the sender: it may send again after a reconnect, or not know us. */
const FORGIVEN: readonly DweErrorCode[] = [
  "Repeated",
  "OutOfOrder",
  "UnknownLayer",
  "ShapeMismatch",
];

/**
 * Believes fragments, one after another, and keeps the weights.
 *
 * With weights of its own it adds what comes. As a replica it is this machine:
 *
 *                hello of another publisher,                  last part of the snapshot
 *                or of a version that is not here             that was asked for
 *     idle/any ------------------------------------> wanting ----------------> following(version) --+
 *                                                      ^ |                        |      ^          |
 *                                                      | | a part of it is        |      |   parts, |
 *                     a missed part or version, base,  | | missing: ask again     |      |   in     |
 *                     or changes that do not fit       | +--> wanting             |      |   order  |
 *                                                      +--------------------------+      +----------+
 *
 * Only a hello makes it turn to another publisher, and it stays with the one that it follows until the
 * snapshot of the other one is here: since that answers a fresh nonce, no recording can lead it astray.
 * Nothing in it knows sockets or time.
 */
export class DeltaFollower {
  readonly #ring: Pick<KeyRing, "keys">;
  readonly #replica: boolean;
  readonly #maxBytes: number;
  readonly #telemetry: DweTelemetry = newTelemetry();
  /** Highest sequence by session; least recently heard of first. */
  readonly #sequences = new Map<string, bigint>();
  #layers: readonly LiveLayer[];
  #following: Following | undefined;
  /** The snapshot that was asked for and is not here yet. */
  #asked: { sid: string; hello: bigint; nonce: string } | undefined;
  #building: { builder: SnapshotBuilder; version: number; parts: number } | undefined;
  #ownSequence = 0n;
  readonly #nonce: () => string;

  /** Starts with the given weights, or with none. */
  constructor(options: FollowerOptions) {
    this.#ring = options.ring;
    this.#replica = options.layers === undefined;
    this.#layers = options.layers ?? [];
    this.#maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
    this.#nonce = options.nonce ?? randomNonce;
  }

  /** The weights; of a replica none before the first snapshot, and others after each one. */
  get layers(): readonly LiveLayer[] {
    return this.#layers;
  }

  /** The consensus that a replica has whole; undefined before the first one. */
  get version(): { readonly sid: string; readonly version: number } | undefined {
    return this.#following && { sid: this.#following.sid, version: this.#following.version };
  }

  /** What has come so far. */
  get telemetry(): Readonly<DweTelemetry> {
    return { ...this.#telemetry };
  }

  /** Takes a fragment as it came, without its length. */
  accept(bytes: Uint8Array): Verdict {
    this.#telemetry.received++;
    const keys = this.#ring.keys();
    let fragment: DweFragment;
    try {
      const decoded = decodeDwe(bytes);
      verifyDwe(decoded, keys);
      checkDweStateHash(decoded.fragment);
      fragment = decoded.fragment;
    } catch (error) {
      return this.refuse(error, false);
    }
    try {
      this.#checkSequence(fragment);
      this.#telemetry.lastSession = fragment.sessionId;
      this.#telemetry.lastFragmentBytes = bytes.length;
      const tag = parseTag(fragment.sessionId);
      const verdict = this.#replica ? this.#follow(fragment, tag) : this.#add(fragment);
      if (verdict.outcome === "applied") this.#telemetry.applied++;
      return verdict;
    } catch (error) {
      return this.refuse(error, true);
    }
  }

  /** Counts something as refused: a fragment, or a length that announces too much. */
  refuse(error: unknown, authentic: boolean): Verdict {
    if (!(error instanceof DweError)) throw error;
    this.#telemetry.rejected++;
    this.#telemetry.lastError = error.message;
    const close = !(authentic && FORGIVEN.includes(error.code));
    return { outcome: "rejected", error, authentic, close };
  }

  #checkSequence({ sessionId, sequence }: DweFragment): void {
    const owner = sequenceOwner(sessionId);
    const highest = this.#sequences.get(owner);
    if (highest !== undefined && sequence <= highest) {
      const code = sequence === highest ? "Repeated" : "OutOfOrder";
      const problem = code === "Repeated" ? "it came before" : `sequence ${highest} came before it`;
      throw new DweError(
        code,
        `taking DWE fragment ${sequence} of session ${
          JSON.stringify(owner.slice(0, 80))
        }: ${problem}`,
      );
    }
    this.#sequences.delete(owner);
    this.#sequences.set(owner, sequence);
    if (this.#sequences.size > MAX_SESSIONS) {
      const [oldest] = this.#sequences.keys();
      this.#sequences.delete(oldest!);
    }
  }

  /** What a plain DWE peer does. */
  #add({ layers }: DweFragment): Verdict {
    if (layers.length === 0) return IGNORED;
    applyChanges(this.#layers, layers);
    return APPLIED;
  }

  #follow(fragment: DweFragment, tag: SessionTag | undefined): Verdict {
    if (tag === undefined || tag.what === "want") {
      throw new DweError(
        "UnknownLayer",
        `taking DWE fragment ${fragment.sequence} of session ` +
          `${
            JSON.stringify(fragment.sessionId.slice(0, 80))
          }: a replica follows a Tierfold publisher`,
      );
    }
    if (tag.what === "hello") return this.#greet(fragment.sequence, tag.sid, tag.version);
    if (tag.what === "snapshot") return this.#snapshot(fragment, tag, tag.nonce);
    const following = this.#following;
    if (following === undefined || tag.sid !== following.sid) return IGNORED;
    if (tag.version <= following.version) return IGNORED;
    return tag.what === "base" ? this.#catchUp(following) : this.#delta(fragment, tag, following);
  }

  #greet(hello: bigint, sid: string, version: number): Verdict {
    const following = this.#following;
    // What was asked for on an earlier connection is lost with it.
    this.#asked = undefined;
    this.#building = undefined;
    if (following === undefined || following.sid !== sid) return this.#want(sid, hello);
    following.hello = hello;
    if (version === following.version && following.parts === 0) return IGNORED;
    return this.#want(sid, hello);
  }

  /** Asks for a snapshot of the publisher that is followed, unless one is on its way. */
  #catchUp({ sid, hello }: Following): Verdict {
    return this.#asked?.sid === sid ? IGNORED : this.#want(sid, hello);
  }

  #want(sid: string, hello: bigint): Verdict {
    const nonce = this.#nonce();
    this.#asked = { sid, hello, nonce };
    this.#building = undefined;
    this.#ownSequence++;
    const sessionId = formatTag({ what: "want", sid, hello, nonce });
    const { current, previous } = this.#ring.keys();
    const content = { sessionId, sequence: this.#ownSequence, layers: [] };
    return { ...IGNORED, reply: sealDwe(content, current ?? previous) };
  }

  #snapshot({ layers }: DweFragment, tag: PartTag, nonce: string): Verdict {
    const { sid, version, part, parts } = tag;
    const asked = this.#asked;
    if (asked === undefined || asked.sid !== sid || asked.nonce !== nonce) return IGNORED;
    if (part === 1) {
      this.#building = { builder: new SnapshotBuilder(this.#maxBytes), version, parts: 0 };
    }
    const building = this.#building;
    if (building === undefined || version !== building.version || part !== building.parts + 1) {
      return this.#want(sid, asked.hello);
    }
    try {
      building.builder.add(layers);
    } catch (error) {
      // Asking again would bring the same: the rest is of no use, and the next hello starts afresh.
      this.#building = undefined;
      this.#asked = { ...asked, nonce: UNWANTED };
      throw error;
    }
    building.parts = part;
    if (part < parts) return APPLIED;
    this.#layers = building.builder.layers;
    this.#building = undefined;
    this.#asked = undefined;
    this.#following = { sid, version, parts: 0, hello: asked.hello };
    return { ...APPLIED, round: { sid, version, by: "snapshot" } };
  }

  #delta({ layers }: DweFragment, tag: PartTag, following: Following): Verdict {
    const { sid, version, part, parts } = tag;
    if (this.#asked?.sid === sid) return IGNORED;
    if (version !== following.version + 1 || part !== following.parts + 1) {
      return this.#catchUp(following);
    }
    try {
      applyChanges(this.#layers, layers);
    } catch (error) {
      // The publisher and this replica disagree on what there is: start over from a snapshot.
      const verdict = this.refuse(error, true);
      const { reply } = this.#catchUp(following);
      return reply === undefined ? verdict : { ...verdict, reply };
    }
    following.parts = part;
    if (part < parts) return APPLIED;
    following.version = version;
    following.parts = 0;
    return { ...APPLIED, round: { sid, version, by: "delta" } };
  }
}

/** The publisher that a replica follows. */
interface Following {
  readonly sid: string;
  /** The version that is whole. */
  version: number;
  /** Parts of the next version that are in. */
  parts: number;
  /** Sequence of its last hello. */
  hello: bigint;
}

const APPLIED: Verdict = { outcome: "applied", authentic: true, close: false };
const IGNORED: Verdict = { outcome: "ignored", authentic: true, close: false };
/** Stands for the nonce of no snapshot. */
const UNWANTED = "";
