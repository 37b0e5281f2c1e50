// A peer at one end of a pipe that says what it was told, listens to nothing, and closes.
import { Link } from "../../transport/link.ts";
import { Pipe, type PipeOptions } from "../../transport/pipe.ts";
import * as fc from "fast-check";
import { soon } from "../cluster/waiting.ts";

/** How a connection may be bad; `flip` is a bit of what the peer says. */
export interface Trouble {
  readonly seed: number;
  readonly budget: number;
  readonly mostBytes: number;
  readonly dieAfter: number | undefined;
  readonly flip: number | undefined;
}

/** Troubles for a peer that says `length` bytes. */
export function troubles(length: number): fc.Arbitrary<Trouble> {
  return fc.record({
    seed: fc.nat(),
    budget: fc.integer({ min: 1, max: 2 * length }),
    mostBytes: fc.integer({ min: 1, max: length }),
    dieAfter: fc.option(fc.nat(length + 20), { nil: undefined, freq: 2 }),
    flip: fc.option(fc.nat(8 * length - 1), { nil: undefined }),
  });
}

/** Runs `serve` at the other end of a peer that says `bytes`; both must come to an end. */
export async function converse(
  bytes: Uint8Array,
  { seed, budget, mostBytes, dieAfter, flip }: Trouble,
  serve: (end: Pipe["ends"][0]) => Promise<void>,
): Promise<void> {
  const options: PipeOptions = {
    seed,
    budget,
    mostBytes,
    ...(dieAfter === undefined ? {} : { dieAfter }),
    corrupt: (chunk, at, end) => {
      const byte = flip === undefined ? -1 : (flip >> 3) - at;
      if (end === 0 && byte >= 0 && byte < chunk.length) chunk[byte]! ^= 1 << (flip! & 7);
    },
  };
  const { ends } = new Pipe(options);
  const peer = new Link(ends[0]);
  const listening = (async () => {
    const sink = new Uint8Array(256);
    while (await peer.readSome(sink, "anything") !== null);
  })().catch(() => {});
  const talking = peer.writeFully(bytes, "it").then(() => ends[0].closeWrite()).catch(() => {});
  await soon("the port ends", serve(ends[1]));
  peer.close();
  await soon("the peer ends", Promise.all([listening, talking]));
}
