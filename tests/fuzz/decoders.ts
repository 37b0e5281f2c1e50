// Every function of Tierfold that makes sense of bytes or text from somewhere else, with bytes that it
// takes and the errors that it may throw. decoders_test.ts holds the list against the sources.
import { decodeCatchUp, encodeCatchUp } from "../../wire/catch_up.ts";
import { loadCheckpoint } from "../../controller/state/load.ts";
import { readCheckpointFile, writeCheckpointFile } from "../../controller/state/checkpoint_file.ts";
import { CheckpointError } from "../../controller/state/checkpoint_error.ts";
import {
  type CheckpointInfo,
  decodeInfo,
  encodeInfo,
} from "../../controller/state/checkpoint_info.ts";
import { startSchema } from "../../controller/passes/schemas.ts";
import { parseSalt } from "../../cli/salt.ts";
import { UsageError } from "../../cli/spec.ts";
import { readManifest } from "../../cli/manifest.ts";
import { formatTag, parseTag } from "../../delta/session.ts";
import { readLadder } from "../../kernels/ladder_cache.ts";
import { BincodeReader } from "../../wire/bincode.ts";
import { FixedReader } from "../../wire/bincode_fixed.ts";
import { decodeControl, encodeControl } from "../../wire/control.ts";
import {
  checkDweLength,
  checkDweStateHash,
  decodeDwe,
  DweError,
  openDwe,
  verifyDwe,
} from "../../wire/dwe.ts";
import { WireError } from "../../wire/errors.ts";
import { decodeGarw, GarwError, parseGarw } from "../../wire/garw.ts";
import {
  decodeAck,
  decodeChallengeHeader,
  decodeHandshake,
  encodeChallengeHeader,
} from "../../wire/handshake.ts";
import { decodeLength } from "../../wire/length.ts";
import { parseManifest } from "../../wire/manifest.ts";
import { decodeChannelMagic, decodeRecord, decodeRecordHeader } from "../../wire/mux.ts";
import { decodeRefusal, encodeRefusal, isRefusal, refusalTextLength } from "../../wire/refusal.ts";
import { decodeFrame, FrameParser } from "../../wire/round_frame.ts";
import {
  decodeSafetensorsHeader,
  decodeSafetensorsPrefix,
  encodeSafetensorsHeader,
  SafetensorsError,
} from "../../wire/safetensors.ts";
import { SALT, SESSION_SALT, vectorBytes } from "../vectors.ts";

const CEILING = 1024 ** 3;
const KEY = new TextEncoder().encode("fleet-secret");

/** One decoder. */
export interface Decoder {
  /** Bytes that mean something to it, or nearly do. */
  readonly samples: readonly Uint8Array[];
  /** What it may throw. */
  // deno-lint-ignore no-explicit-any -- constructors of any errors
  readonly errors: readonly (new (...args: any[]) => Error)[];
  /** Reads; may give anything. */
  readonly run: (bytes: Uint8Array) => unknown;
  /** Reads what lies in a file; slow. */
  readonly runFile?: true;
}

const utf8 = (text: string) => new TextEncoder().encode(text);
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const json = (value: unknown) => utf8(JSON.stringify(value));
const u64 = (value: number) => [value, 0, 0, 0, 0, 0, 0, 0];
const vectors = (...names: string[]) => names.map((name) => vectorBytes(`${name}.bin`));

const dwe = vectors("dwe_signed", "dwe_unsigned", "dwe_signed_previous_key", "bad_dwe_tampered");
const garw = vectors("garw_1", "garw_2", "garw_scalarless", "bad_garw_huge_shape_len");
const frames = [
  ...vectors("reduce_abc", "fold_ab", "bad_round_huge_nbytes", "bad_round_tensor_count"),
];
const records = vectors(
  "mux_hello",
  "mux_host_frame",
  "mux_broadcast",
  "mux_rank_exit",
  "mux_data",
);
const controls = [
  encodeControl({ type: "hello", host: "a host", ranks: [0, 1, 2, 300, 70_000], narrow: true }),
  encodeControl({ type: "rank_exit", rank: 300 }),
  encodeControl({ type: "hello_ack" }),
];
const tensors = [
  { name: "w", dtype: "F32" as const, shape: [2, 3], bytes: new Uint8Array(24) },
  { name: "b", dtype: "F32" as const, shape: [], bytes: new Uint8Array(4) },
];
const INFO: CheckpointInfo = {
  step: 7,
  session: 1,
  round: 6,
  outer: { name: "nesterov", rate: 0.7, momentum: 0.9 },
  groups: [1, 1],
};

async function checkpointBytes(): Promise<Uint8Array> {
  const path = await Deno.makeTempFile();
  await Deno.remove(path);
  try {
    await writeCheckpointFile(path, tensors, { ...INFO, outer: { name: "average" } });
    return await Deno.readFile(path);
  } finally {
    await Deno.remove(path);
  }
}

async function inFile<T>(bytes: Uint8Array, read: (path: string) => T | Promise<T>): Promise<T> {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeFile(path, bytes);
    return await read(path);
  } finally {
    await Deno.remove(path);
  }
}

const checkpoint = await checkpointBytes();
const safetensors = encodeSafetensorsHeader(tensors, { a: "b" }).bytes;
const names = [json(["a", "b.c"]), json([["a"], ["b", "c"]])];
/** Two flags, a string, a count of one item, two numbers and eight bytes. */
const fixed = Uint8Array.from(
  [1, 0, ...u64(3), 97, 98, 99, ...u64(1), ...u64(5), ...u64(6), ...u64(7)],
);
const NONCE = "fedcba9876543210";
const PART = { sid: "0123456789abcdef", version: 3, part: 1, parts: 2 };
const tags = [
  formatTag({ what: "snapshot", ...PART, nonce: NONCE }),
  formatTag({ what: "delta", ...PART }),
  formatTag({ what: "want", sid: PART.sid, hello: 12n, nonce: NONCE }),
].map(utf8);

/** By file and name. */
export const DECODERS: Readonly<Record<string, Decoder>> = {
  "wire/dwe.ts decodeDwe": { samples: dwe, errors: [DweError], run: decodeDwe },
  "wire/dwe.ts openDwe": {
    samples: dwe,
    errors: [DweError],
    run: (bytes) => openDwe(bytes, { current: KEY, previous: undefined }),
  },
  "wire/dwe.ts verifyDwe": {
    samples: dwe,
    errors: [DweError],
    run: (bytes) => verifyDwe(decodeDwe(bytes), { current: KEY, previous: KEY }),
  },
  "wire/dwe.ts checkDweStateHash": {
    samples: dwe,
    errors: [DweError],
    run: (bytes) => checkDweStateHash(decodeDwe(bytes).fragment),
  },
  "wire/dwe.ts checkDweLength": {
    samples: vectors("len_framed_model_a"),
    errors: [DweError],
    run: (bytes) =>
      checkDweLength(
        new DataView(Uint8Array.from([...bytes, 0, 0, 0, 0]).buffer).getUint32(0, true),
      ),
  },
  "wire/bincode_fixed.ts FixedReader": {
    samples: [fixed, ...dwe],
    errors: [DweError],
    run: (bytes) => {
      const reader = new FixedReader(bytes, (_, message) => new DweError("Malformed", message));
      return [
        reader.flag("a"),
        reader.flag("b"),
        reader.string("c"),
        reader.count("d", 4),
        reader.uint("e"),
        reader.u64("f"),
        reader.raw("g", 8),
      ];
    },
  },
  "wire/bincode.ts BincodeReader": {
    samples: controls,
    errors: [WireError],
    run: (bytes) => {
      const reader = new BincodeReader(bytes, "a message");
      return [
        reader.uint("a", 10),
        reader.string("b", 300),
        reader.uint("c", 1e9),
        reader.remaining,
      ];
    },
  },
  "wire/control.ts decodeControl": { samples: controls, errors: [WireError], run: decodeControl },
  "wire/handshake.ts decodeHandshake": {
    samples: vectors("handshake_rank"),
    errors: [WireError],
    run: (bytes) => decodeHandshake(bytes, [2, 3]),
  },
  "wire/handshake.ts decodeAck": {
    samples: vectors("handshake_ack"),
    errors: [WireError],
    run: (bytes) => decodeAck(bytes),
  },
  "wire/catch_up.ts decodeCatchUp": {
    samples: [encodeCatchUp({ rounds: 3, length: 40 }, SALT)],
    errors: [WireError],
    run: (bytes) => decodeCatchUp(bytes, SALT, CEILING),
  },
  "wire/handshake.ts decodeChallengeHeader": {
    samples: [encodeChallengeHeader(0x202)],
    errors: [WireError],
    run: (bytes) => decodeChallengeHeader(bytes, 0x202),
  },
  "wire/length.ts decodeLength": {
    samples: vectors("len_framed_model_a", "len_framed_empty"),
    errors: [WireError],
    run: (bytes) => decodeLength(Uint8Array.from([...bytes, 0, 0, 0, 0]).subarray(0, 4), CEILING),
  },
  "wire/mux.ts decodeChannelMagic": {
    samples: [vectorBytes("channel_magic_data.bin").slice(0, 4)],
    errors: [WireError],
    run: decodeChannelMagic,
  },
  "wire/mux.ts decodeRecordHeader": {
    samples: records,
    errors: [WireError],
    run: (bytes) => decodeRecordHeader(bytes, CEILING),
  },
  "wire/mux.ts decodeRecord": {
    samples: records,
    errors: [WireError],
    run: (bytes) => decodeRecord(bytes, SALT, CEILING),
  },
  "wire/round_frame.ts FrameParser": {
    samples: frames,
    errors: [WireError],
    run: (bytes) => {
      const parser = new FrameParser(CEILING);
      for (let have = 0; have < bytes.length; have += 7) parser.advance(bytes, have);
      return parser.advance(bytes, bytes.length);
    },
  },
  "wire/round_frame.ts decodeFrame": {
    samples: frames,
    errors: [WireError],
    run: (bytes) => decodeFrame(bytes, SALT, CEILING),
  },
  "wire/refusal.ts isRefusal": {
    samples: [encodeRefusal("because", SALT)],
    errors: [],
    run: isRefusal,
  },
  "wire/refusal.ts refusalTextLength": {
    samples: [encodeRefusal("because", SALT)],
    errors: [],
    // Only ever asked about a whole header.
    run: (bytes) => bytes.length < 16 || refusalTextLength(bytes),
  },
  "wire/refusal.ts decodeRefusal": {
    samples: [encodeRefusal("because", SALT), encodeRefusal("", SALT)],
    errors: [],
    run: (bytes) => decodeRefusal(bytes, SALT),
  },
  "wire/garw.ts parseGarw": { samples: garw, errors: [GarwError], run: parseGarw },
  "wire/garw.ts decodeGarw": { samples: garw, errors: [GarwError], run: decodeGarw },
  "wire/safetensors.ts decodeSafetensorsPrefix": {
    samples: [safetensors],
    errors: [SafetensorsError],
    run: (bytes) => decodeSafetensorsPrefix(bytes, 500),
  },
  "wire/safetensors.ts decodeSafetensorsHeader": {
    samples: [safetensors.slice(8)],
    errors: [SafetensorsError],
    run: (bytes) => decodeSafetensorsHeader(bytes, 8 + bytes.length + 28),
  },
  "wire/manifest.ts parseManifest": {
    samples: names,
    errors: [RangeError],
    run: (bytes) => parseManifest(text(bytes)),
  },
  "delta/session.ts parseTag": { samples: tags, errors: [], run: (bytes) => parseTag(text(bytes)) },
  "controller/state/checkpoint_info.ts decodeInfo": {
    samples: [utf8(encodeInfo(INFO))],
    errors: [],
    run: (bytes) => decodeInfo(text(bytes)),
  },
  "controller/state/checkpoint_file.ts readCheckpointFile": {
    samples: [checkpoint],
    errors: [CheckpointError],
    runFile: true,
    run: (bytes) =>
      inFile(bytes, (path) =>
        readCheckpointFile(
          path,
          ({ header }) => header.tensors.map(({ nbytes }) => new Uint8Array(nbytes)),
        )),
  },
  "controller/state/load.ts loadCheckpoint": {
    samples: [checkpoint],
    errors: [CheckpointError],
    runFile: true,
    run: async (bytes) => (await inFile(bytes, loadCheckpoint)).tensors,
  },
  "controller/passes/schemas.ts startSchema": {
    samples: [json({ round: 1, initiator: "a", expected: 2, layers: [{ name: "w", shape: [2] }] })],
    errors: [SyntaxError],
    run: (bytes) => startSchema.safeParse(JSON.parse(text(bytes))).success,
  },
  "kernels/ladder_cache.ts readLadder": {
    samples: [json({
      format: 1,
      ladders: [{ key: "k", rungs: [{ bytes: 1, rates: { plain: 2.5 }, pick: "plain" }] }],
    })],
    errors: [Error],
    runFile: true,
    run: (bytes) => inFile(bytes, (path) => readLadder(path, "k")),
  },
  "cli/manifest.ts readManifest": {
    samples: names,
    errors: [UsageError],
    runFile: true,
    run: (bytes) => inFile(bytes, readManifest),
  },
  "cli/salt.ts parseSalt": {
    samples: [utf8(SESSION_SALT.toHex())],
    errors: [UsageError],
    run: (bytes) => parseSalt(text(bytes), "a test"),
  },
};

const LIVE = "a stream: conversations_test.ts fuzzes it at live servers";
const LOGIC = "decides about values that a decoder made";

/** What bears such a name and is no decoder of bytes, or is fuzzed elsewhere; with the reason. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  "frames/refusals.ts readRefusal": LIVE,
  "frames/receive.ts receiveFrame": LIVE,
  "frames/records.ts RecordReader": LIVE,
  "controller/passes/policy.ts checkEnough": LOGIC,
  "controller/passes/pass.ts isName": LOGIC,
  "controller/passes/pass.ts checkSpec": LOGIC,
  "controller/passes/checks.ts checkShape": LOGIC,
  "controller/passes/checks.ts checkValues": LOGIC,
  "controller/passes/openapi.ts openApiDocument": "writes a document",
  "controller/state/checkpoints.ts readNewest": "asks readCheckpointFile about each file",
  "cli/salt.ts readSalt": "asks parseSalt",
};
