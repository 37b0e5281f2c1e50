// The golden vectors themselves: none missing, none unknown, none without a test.
import { assertEquals } from "@std/assert";
import { index, vectorBytes } from "../vectors.ts";

Deno.test("vectors: the index and the folder list the same files, with the lengths they have", () => {
  const folder = new URL("../vectors/", import.meta.url);
  const files = [...Deno.readDirSync(folder)].map(({ name }) => name)
    .filter((name) => name.endsWith(".bin"));
  assertEquals(files.sort(), index.vectors.map(({ file }) => file).sort());
  for (const { file, bytes } of index.vectors) {
    assertEquals(vectorBytes(file).length, bytes, file);
  }
});

Deno.test("vectors: every format is one that a test decodes", () => {
  // Each format's test asserts how many vectors it went through, so a new one cannot go untested.
  const counts = Object.groupBy(index.vectors, ({ format }) => format);
  assertEquals(Object.keys(counts).sort(), [
    "channel_magic",
    "dwe",
    "garw",
    "len_framed",
    "mux",
    "rank_handshake",
    "rank_handshake_ack",
    "round_frame",
  ]);
});
