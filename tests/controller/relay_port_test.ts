// A relay's port at the end of a bad connection.
import { assert, assertEquals } from "@std/assert";
import * as fc from "fast-check";
import { Membership } from "../../controller/membership.ts";
import { type RelayHost, RelayPort } from "../../controller/relay_port.ts";
import { FrameSlot } from "../../frames/slot.ts";
import { Arena } from "../../kernels/arena.ts";
import { encodeControl } from "../../wire/control.ts";
import { encodeChannelMagic, encodeRecord } from "../../wire/mux.ts";
import { LoopTagger } from "../../workers/tagger.ts";
import { frameOf } from "../cluster/raw.ts";
import { TERMS } from "../../serve/terms.ts";
import { converse, type Trouble, troubles } from "../transport/peer.ts";
import { hex, SESSION_SALT as SALT } from "../vectors.ts";

const frames = [frameOf([[1, 2, 3]]), frameOf([[4], []], { weight: 2 })];
const records = [
  encodeRecord("control", 0, encodeControl({ type: "hello", host: "h", ranks: [1, 2] }), SALT),
  encodeRecord("host_frame", 0, frames[0]!, SALT),
  encodeRecord("control", 0, encodeControl({ type: "rank_exit", rank: 2 }), SALT),
  encodeRecord("data", 1, new Uint8Array(20), SALT),
  encodeRecord("host_frame", 0, frames[1]!, SALT),
  encodeRecord("control", 0, encodeControl({ type: "hello", host: "h", ranks: [1, 2] }), SALT),
];
const said = Uint8Array.from([
  ...encodeChannelMagic(),
  ...records.flatMap((record) => [...record]),
]);
const events = ["hello h 1,2", hex(frames[0]!), "exit 2", "", hex(frames[1]!), "renew 1,2"];
const arena = new Arena();

/** What a controller sees of one connection, in order. */
async function serve(trouble: Trouble): Promise<{ seen: string[]; left: string[] }> {
  const slot = new FrameSlot(arena);
  const membership = new Membership(3);
  const seen: string[] = [];
  const left: string[] = [];
  const controller: RelayHost = {
    terms: { ...TERMS, salt: SALT, ceiling: 65_536, helloBytes: 1_000, recordMs: 10_000 },
    tagger: new LoopTagger(SALT),
    hello(port, { host: name, ranks }) {
      port.welcome(membership.claim(name, ranks), undefined);
      seen.push(`hello ${name} ${ranks}`);
      return Promise.resolve();
    },
    entrance: () => undefined,
    renew: (_, ranks) => seen.push(`renew ${ranks}`),
    expectFrame: () => slot,
    arriving: () => {},
    deliver: (_, header) => seen.push(hex(slot.frame.subarray(0, header.length))),
    rankExit: (_, rank) => seen.push(`exit ${rank}`),
    left: (_, reason) => left.push(reason),
  };
  await converse(said, trouble, (end) => new RelayPort(end, controller).run());
  slot.release();
  return { seen, left };
}

Deno.test("relay port: a good conversation, whatever the chunks", async () => {
  for (const mostBytes of [1, 2, 5, 4096]) {
    for (const budget of [1, 7, 4096]) {
      const { seen, left } = await serve({
        seed: 1,
        mostBytes,
        budget,
        dieAfter: undefined,
        flip: undefined,
      });
      assertEquals(seen, events.filter(Boolean));
      assertEquals(left, ["it closed its channel"]);
    }
  }
});

Deno.test("relay port: on a bad connection it ends, lets nothing wrong in, and says so once", async () => {
  await fc.assert(
    fc.asyncProperty(troubles(said.length), async (trouble) => {
      const { seen, left } = await serve(trouble);
      assertEquals(seen, events.filter(Boolean).slice(0, seen.length));
      assertEquals(left.length, 1);
      const { dieAfter, flip } = trouble;
      // The answer to Hello goes the other way, in 26 bytes.
      const dies = dieAfter !== undefined && dieAfter <= said.length + 26;
      if (flip === undefined && !dies) assertEquals(seen.length, 5);
      if (flip !== undefined) {
        let whole = 4;
        const before = records.filter((record) => (whole += record.length) <= flip >> 3).length;
        const passed = events.slice(0, before).filter(Boolean);
        assert(seen.length <= passed.length, `${seen.length} events, at most ${passed.length}`);
        if (dieAfter === undefined && flip >> 3 >= 4) assertEquals(seen.length, passed.length);
        assert(left[0] !== "it closed its channel", "a bad record passes for a clean end");
      }
    }),
    { numRuns: 400 },
  );
});
