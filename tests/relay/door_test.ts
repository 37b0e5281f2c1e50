// Who is let in at a relay's door while its session ends.
import { assertEquals } from "@std/assert";
import { FoldBarrier } from "../../fold/barrier.ts";
import { Door } from "../../relay/door.ts";
import type { RankPort } from "../../relay/rank_port.ts";
import type { RelaySettings } from "../../relay/settings.ts";
import { decodeFrame } from "../../wire/round_frame.ts";
import { frameOf } from "../cluster/raw.ts";
import { failure } from "../cluster/waiting.ts";
import { SESSION_SALT } from "../vectors.ts";

const SETTINGS = { host: "a", ranks: [0, 1], worldSize: 2 } as unknown as RelaySettings;
const hello = (rank: number) => ({ version: 2, rank, worldSize: 2 });

/** What a door asks of a port. */
function portOf(rank: number, done: Promise<void> = Promise.resolve()): RankPort {
  const refuse = () => Promise.resolve();
  return { rank, peer: `peer ${rank}`, gone: false, done, refuse } as unknown as RankPort;
}

Deno.test("door: who waited for its last connection when the session ended is refused", async () => {
  const barrier = new FoldBarrier([0, 1]);
  const door = new Door(SETTINGS, barrier, {
    ready: () => true,
    enter: (rank) => void barrier.join(rank),
    waits: () => {},
  });
  const parting = Promise.withResolvers<void>();
  const old = portOf(1, parting.promise);
  await door.admit(hello(0), portOf(0));
  await door.admit(hello(1), old);
  const bytes = frameOf([[1]], { salt: SESSION_SALT });
  barrier.deliver(0, { bytes, header: decodeFrame(bytes, SESSION_SALT, 1024) });
  barrier.leave(1);
  assertEquals(door.leave(old), 1);
  const refused = failure(
    "the one who came back",
    door.admit(hello(1), portOf(1)),
    "the session is over",
  );
  const told: Promise<void>[] = [];
  door.close("the session is over", (task) => told.push(task));
  parting.resolve();
  await refused;
  await Promise.all(told);
});
