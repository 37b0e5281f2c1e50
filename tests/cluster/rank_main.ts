// One or more ranks as a process of its own, told what to do by JSON lines on its standard input:
//
//     TIERFOLD_SALT=... deno run rank_main.ts client|raw WORLD_SIZE RANK@HOST:PORT...
//
// It answers each line with `done JSON`, or with `failed REASON` and exit code 1.
import { linesOf } from "../../bench/lines.ts";
import { RankClient } from "../../mod.ts";
import { frameOf, prefixed, RawRank } from "./raw.ts";

interface Command {
  readonly act: "round" | "send" | "counts" | "broadcast" | "close";
  readonly values?: number[][];
  readonly masses?: number[];
  readonly root?: number;
  /** The part of a frame that is sent. */
  readonly part?: number;
}

function say(word: "done" | "failed", what: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${word} ${what.replaceAll("\n", " ")}\n`));
}

async function obey(clients: readonly RankClient[], command: Command): Promise<unknown> {
  const { act, values = [], masses = [], root = 0 } = command;
  const data = values.map((list) => Float32Array.from(list));
  const each = <T>(what: (client: RankClient, i: number) => Promise<T>) =>
    Promise.all(clients.map(what));
  if (act === "round") {
    const results = await each((client, i) =>
      client.allReduce([{ name: "weights", data: data[i]! }], { mass: masses[i]! })
    );
    return { masses: results.map(({ mass }) => mass), values: data.map((list) => [...list]) };
  }
  if (act === "broadcast") {
    await each((client, i) => client.broadcast([data[i]!], root));
    return data.map((list) => [...list]);
  }
  if (act === "counts") {
    return (await each((client, i) => client.gatherCounts(masses[i]!))).map((list) => [...list]);
  }
  throw new Error(`nobody does ${act}`);
}

const [mode, worldSize, ...places] = Deno.args;
const salt = Deno.env.get("TIERFOLD_SALT") ?? "";
const named = places.map((place) => place.split("@") as [string, string]);
try {
  const raws = mode !== "raw" ? [] : await Promise.all(
    named.map(([rank, relay]) => RawRank.join(relay, Number(rank), Number(worldSize))),
  );
  const clients = mode === "raw" ? [] : await Promise.all(
    named.map(([rank, relay]) =>
      RankClient.connect({ relay, rank: Number(rank), worldSize: Number(worldSize), salt })
    ),
  );
  say("done", '"connected"');
  const lines = linesOf(Deno.stdin.readable);
  for (;;) {
    const { value, done } = await lines.read();
    if (done) break;
    const command: Command = JSON.parse(value);
    if (command.act === "close") break;
    if (command.act === "send") {
      const frame = prefixed(frameOf(command.values!));
      const bytes = frame.subarray(0, Math.floor(frame.length * (command.part ?? 1)));
      for (const raw of raws) await raw.write(bytes);
      say("done", `${bytes.length}`);
    } else say("done", JSON.stringify(await obey(clients, command)));
  }
  for (const raw of raws) raw.close();
  for (const client of clients) await client.close();
  Deno.exit(0);
} catch (error) {
  say("failed", error instanceof Error ? error.message : String(error));
  Deno.exit(1);
}
