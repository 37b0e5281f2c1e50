// Peers that speak the wire by hand: for saying what no client of ours would say.
import { AssertionError } from "@std/assert";
import {
  type ControlMessage,
  decodeControl,
  encodeControl,
  type HelloStanding,
} from "../../wire/control.ts";
import { decodeAck, encodeHandshake, PROTOCOL_F32 } from "../../wire/handshake.ts";
import { encodeLength } from "../../wire/length.ts";
import {
  decodeRecord,
  decodeRecordHeader,
  encodeChannelMagic,
  encodeRecord,
  RECORD_HEADER_BYTES,
  type RecordKind,
} from "../../wire/mux.ts";
import { decodeRefusal } from "../../wire/refusal.ts";
import {
  decodeFrame,
  encodeFrame,
  type FrameHeader,
  type RoundKind,
} from "../../wire/round_frame.ts";
import { SESSION_SALT as SALT } from "../vectors.ts";
import { soon } from "./waiting.ts";

const CEILING = 64 * 1024 ** 2;

/** A frame of one tensor for each list of values. */
export function frameOf(
  values: readonly (readonly number[])[],
  { kind = "model", weight = 1, salt = SALT, shapes }: {
    kind?: RoundKind;
    weight?: number;
    salt?: Uint8Array;
    shapes?: readonly (readonly number[])[];
  } = {},
): Uint8Array {
  const tensors = values.map((list, i) => ({
    shape: shapes?.[i] ?? [list.length],
    values: Float32Array.from(list),
  }));
  return encodeFrame(kind, weight, tensors, salt);
}

/** The header and the values of a frame. */
export function openFrame(frame: Uint8Array): { header: FrameHeader; values: number[][] } {
  const header = decodeFrame(frame, SALT, CEILING);
  const values = header.tensors.map(({ at, nbytes }) => [
    ...new Float32Array(frame.slice(at, at + nbytes).buffer),
  ]);
  return { header, values };
}

/** A length prefix and its blob. */
export function prefixed(blob: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(4 + blob.length);
  encodeLength(bytes, 0, blob.length);
  bytes.set(blob, 4);
  return bytes;
}

/** One end of a connection, with a deadline on every read. */
export class RawPeer implements Disposable {
  readonly #conn: Deno.TcpConn;
  #closed = false;

  constructor(conn: Deno.TcpConn) {
    conn.setNoDelay(true);
    this.#conn = conn;
  }

  static async connect(address: string): Promise<RawPeer> {
    return new RawPeer(await dial(address));
  }

  async write(bytes: Uint8Array): Promise<void> {
    let rest = Uint8Array.from(bytes);
    while (rest.length > 0) rest = rest.subarray(await this.#conn.write(rest));
  }

  /** Reads exactly `count` bytes; fails at an earlier end of the stream. */
  async read(count: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(count);
    let have = 0;
    while (have < count) {
      const got = await soon(`${count} bytes`, this.#conn.read(bytes.subarray(have)));
      if (got === null) {
        throw new AssertionError(`the stream ended after ${have} of ${count} bytes`);
      }
      have += got;
    }
    return bytes;
  }

  /** Everything up to the end of the stream. */
  async rest(): Promise<Uint8Array> {
    const chunks: number[] = [];
    const chunk = new Uint8Array(4096);
    for (;;) {
      const got = await soon("the end of the stream", this.#conn.read(chunk));
      if (got === null) return Uint8Array.from(chunks);
      chunks.push(...chunk.subarray(0, got));
    }
  }

  /** The reason that the other end gives before it closes; fails when something else comes. */
  async refusal(): Promise<string> {
    const bytes = await this.rest();
    const text = decodeRefusal(bytes, SALT);
    if (text === undefined) throw new AssertionError(`${bytes.length} bytes came, not a refusal`);
    return text;
  }

  /** Says that nothing more will be written. */
  closeWrite(): Promise<void> {
    return this.#conn.closeWrite();
  }

  close(): void {
    if (!this.#closed) this.#conn.close();
    this.#closed = true;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function dial(address: string): Promise<Deno.TcpConn> {
  const [hostname, port] = address.split(":");
  return Deno.connect({ hostname: hostname!, port: Number(port) });
}

/** A rank by hand. */
export class RawRank extends RawPeer {
  /** Connects, shakes hands and waits for the answer. */
  static async join(
    address: string,
    rank: number,
    worldSize: number,
    version: number = PROTOCOL_F32,
  ): Promise<RawRank> {
    const peer = new RawRank(await dial(address));
    await peer.write(encodeHandshake({ version, rank, worldSize }));
    decodeAck(await peer.read(8), version);
    return peer;
  }

  sendFrame(frame: Uint8Array): Promise<void> {
    return this.write(prefixed(frame));
  }

  async readFrame(): Promise<{ header: FrameHeader; values: number[][] }> {
    const length = new DataView((await this.read(4)).buffer).getUint32(0, true);
    return openFrame(await this.read(length));
  }
}

/** A relay, or a controller, by hand. */
export class RawChannel extends RawPeer {
  /** Connects as a relay and says Hello. */
  static async hello(
    address: string,
    host: string,
    ranks: readonly number[],
    salt: Uint8Array = SALT,
    standing?: HelloStanding,
  ): Promise<RawChannel> {
    const peer = new RawChannel(await dial(address));
    await peer.write(encodeChannelMagic());
    const more = standing === undefined ? {} : { standing };
    await peer.sendControl({ type: "hello", host, ranks: [...ranks], ...more }, salt);
    return peer;
  }

  /** Says Hello as a relay and waits for the answer. */
  static async join(address: string, host: string, ranks: readonly number[]): Promise<RawChannel> {
    const peer = await RawChannel.hello(address, host, ranks);
    await peer.expectControl("hello_ack");
    return peer;
  }

  sendControl(message: ControlMessage, salt: Uint8Array = SALT): Promise<void> {
    return this.write(encodeRecord("control", 0, encodeControl(message), salt));
  }

  sendFrame(kind: RecordKind, frame: Uint8Array): Promise<void> {
    return this.write(encodeRecord(kind, 0, frame, SALT));
  }

  async readRecord(): Promise<{ kind: RecordKind; payload: Uint8Array }> {
    const start = await this.read(RECORD_HEADER_BYTES);
    const { kind, length } = decodeRecordHeader(start, CEILING);
    const record = new Uint8Array(RECORD_HEADER_BYTES + length);
    record.set(start);
    record.set(await this.read(length), RECORD_HEADER_BYTES);
    return { kind, payload: decodeRecord(record, SALT, CEILING).payload };
  }

  async expectControl<T extends ControlMessage["type"]>(
    type: T,
  ): Promise<Extract<ControlMessage, { type: T }>> {
    const { kind, payload } = await this.readRecord();
    if (kind !== "control") throw new AssertionError(`a ${kind} came, expected ${type}`);
    const message = decodeControl(payload);
    if (message.type !== type) {
      throw new AssertionError(`${JSON.stringify(message)} came, expected ${type}`);
    }
    return message as Extract<ControlMessage, { type: T }>;
  }

  async expectFrame(kind: RecordKind): Promise<{ header: FrameHeader; values: number[][] }> {
    const record = await this.readRecord();
    if (record.kind !== kind) throw new AssertionError(`a ${record.kind} came, expected ${kind}`);
    return openFrame(record.payload);
  }
}

/** A relay that said Hello. */
export interface AcceptedRelay {
  readonly channel: RawChannel;
  readonly host: string;
  readonly ranks: number[];
  readonly standing: HelloStanding | undefined;
}

/** A controller by hand: accepts one relay after another. */
export class RawController implements Disposable {
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly address = { hostname: "127.0.0.1", port: this.#listener.addr.port };
  #closed = false;

  /** The next relay, its magic and Hello read and, unless told otherwise, answered. */
  async accept(answer = true): Promise<AcceptedRelay> {
    const channel = new RawChannel(await soon("a relay", this.#listener.accept()));
    await channel.read(4);
    const { host, ranks, standing } = await channel.expectControl("hello");
    if (answer) await channel.sendControl({ type: "hello_ack" });
    return { channel, host, ranks, standing };
  }

  [Symbol.dispose](): void {
    if (!this.#closed) this.#listener.close();
    this.#closed = true;
  }
}
