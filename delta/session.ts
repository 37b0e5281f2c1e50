/**
 * How Tierfold says more in a DWE fragment than DWE has fields for: by the text of its session_id.
 *
 *     tierfold-1:SID:hello:VERSION                first fragment of a connection, without layers
 *     tierfold-1:SID:base:VERSION                 layers appeared; only a snapshot shows them. No layers
 *     tierfold-1:SID:delta:VERSION:PART/PARTS     changes from VERSION - 1 to VERSION
 *     tierfold-1:SID:snapshot:VERSION:PART/PARTS:NONCE   VERSION, as changes from all zeros
 *     tierfold-1:SID:want:SEQUENCE:NONCE          from a replica, without layers: asks for a snapshot,
 *                                                 naming the sequence of the connection's hello
 *
 * SID is 16 hex digits, drawn by the publisher when it starts; NONCE is 16 hex digits, drawn by the
 * replica for each request, so that no recorded snapshot passes for a fresh one. VERSION counts the
 * published consensuses from 1; 0 stands for none yet. PART counts from 1. To a plain DWE peer all of
 * these are session ids like any other, and a fragment without layers changes nothing.
 *
 * @module
 */

const PREFIX = "tierfold-1";
const PATTERNS = {
  plain: /^tierfold-1:([0-9a-f]{16}):(hello|base):([0-9]{1,15})$/,
  delta: /^tierfold-1:([0-9a-f]{16}):delta:([0-9]{1,15}):([0-9]{1,9})\/([0-9]{1,9})$/,
  snapshot:
    /^tierfold-1:([0-9a-f]{16}):snapshot:([0-9]{1,15}):([0-9]{1,9})\/([0-9]{1,9}):([0-9a-f]{16})$/,
  want: /^tierfold-1:([0-9a-f]{16}):want:([0-9]{1,20}):([0-9a-f]{16})$/,
};

/** Some part of a version. */
export interface PartTag {
  /** The publisher's run. */
  readonly sid: string;
  /** Which of its consensuses. */
  readonly version: number;
  /** Which fragment of the version it is, from 1. */
  readonly part: number;
  /** Of how many. */
  readonly parts: number;
}

/** What a session_id of Tierfold says. */
export type SessionTag =
  | { readonly what: "hello"; readonly sid: string; readonly version: number }
  | { readonly what: "base"; readonly sid: string; readonly version: number }
  | PartTag & { readonly what: "delta" }
  | PartTag & { readonly what: "snapshot"; readonly nonce: string }
  | {
    readonly what: "want";
    readonly sid: string;
    /** Sequence of the hello that is answered. */
    readonly hello: bigint;
    /** Comes back in the snapshot. */
    readonly nonce: string;
  };

/** A tag as a session_id. */
export function formatTag(tag: SessionTag): string {
  const head = `${PREFIX}:${tag.sid}:${tag.what}`;
  switch (tag.what) {
    case "hello":
    case "base":
      return `${head}:${tag.version}`;
    case "delta":
      return `${head}:${tag.version}:${tag.part}/${tag.parts}`;
    case "snapshot":
      return `${head}:${tag.version}:${tag.part}/${tag.parts}:${tag.nonce}`;
    case "want":
      return `${head}:${tag.hello}:${tag.nonce}`;
  }
}

/** The tag in a session_id; undefined for the sessions of plain DWE peers. */
export function parseTag(sessionId: string): SessionTag | undefined {
  const plain = PATTERNS.plain.exec(sessionId);
  if (plain !== null) {
    const tag = { sid: plain[1]!, version: Number(plain[3]) };
    return plain[2] === "hello" ? { what: "hello", ...tag } : { what: "base", ...tag };
  }
  const want = PATTERNS.want.exec(sessionId);
  if (want !== null) {
    return { what: "want", sid: want[1]!, hello: BigInt(want[2]!), nonce: want[3]! };
  }
  const snapshot = PATTERNS.snapshot.exec(sessionId);
  const match = snapshot ?? PATTERNS.delta.exec(sessionId);
  if (match === null) return undefined;
  const [, sid, version, part, parts] = match;
  const tag = { sid: sid!, version: Number(version), part: Number(part), parts: Number(parts) };
  if (tag.part < 1 || tag.part > tag.parts) return undefined;
  return snapshot === null
    ? { what: "delta", ...tag }
    : { what: "snapshot", ...tag, nonce: snapshot[5]! };
}

/**
 * Whose sequence a fragment belongs to. Hellos have one of their own, since they overtake what waits in
 * a queue; deltas and snapshots of a session share one.
 */
export function sequenceOwner(sessionId: string): string {
  const tag = parseTag(sessionId);
  if (tag === undefined) return sessionId;
  return tag.what === "hello" ? `${PREFIX}:${tag.sid}:hello` : `${PREFIX}:${tag.sid}`;
}
