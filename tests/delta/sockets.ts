// Raw DWE over TCP, and waiting for things, for the tests of this folder.

/** A raw sender: whatever it is told goes on the wire. */
export class Sender {
  readonly #conn: Deno.TcpConn;

  private constructor(conn: Deno.TcpConn) {
    this.#conn = conn;
  }

  static async to(address: { hostname: string; port: number }): Promise<Sender> {
    return new Sender(await Deno.connect(address));
  }

  async raw(bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length;) done += await this.#conn.write(bytes.subarray(done));
  }

  async fragment(bytes: Uint8Array, length = bytes.length): Promise<void> {
    const framed = new Uint8Array(4 + bytes.length);
    new DataView(framed.buffer).setUint32(0, length, true);
    framed.set(bytes, 4);
    await this.raw(framed);
  }

  /** Reads whatever comes until the other end closes; a reset counts as closing. */
  async untilClosed(): Promise<Uint8Array> {
    const all: number[] = [];
    const buffer = new Uint8Array(4_096);
    for (;;) {
      const count = await this.#conn.read(buffer).catch(() => null);
      if (count === null) return Uint8Array.from(all);
      all.push(...buffer.subarray(0, count));
    }
  }

  close(): void {
    try {
      this.#conn.close();
    } catch {
      // Closed already.
    }
  }
}

/** Reads one length-framed blob; undefined at the end of the stream. */
export async function readBlob(conn: Deno.TcpConn): Promise<Uint8Array | undefined> {
  const read = async (length: number): Promise<Uint8Array | undefined> => {
    const bytes = new Uint8Array(length);
    for (let have = 0; have < length;) {
      const count = await conn.read(bytes.subarray(have)).catch(() => null);
      if (count === null) return undefined;
      have += count;
    }
    return bytes;
  };
  const head = await read(4);
  return head && await read(new DataView(head.buffer).getUint32(0, true));
}

/** Waits until `condition` holds, for at most ten seconds. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
): Promise<void> {
  for (const end = Date.now() + 10_000; !await condition();) {
    if (Date.now() > end) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A port that was free a moment ago. */
export function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}
