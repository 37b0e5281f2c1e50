// Errors about a magic say whose bytes came instead.
import { assertEquals } from "@std/assert";
import { decodeAck, decodeHandshake, encodeHandshake } from "../../wire/handshake.ts";
import { decodeChannelMagic, decodeRecordHeader, encodeChannelMagic } from "../../wire/mux.ts";
import { refused } from "./torture.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

Deno.test("stranger: who speaks another protocol at a port is named in the error", () => {
  const rank = encodeHandshake({ version: 2, rank: 0, worldSize: 1 });
  const record = new Uint8Array(25);
  const cases: [what: string, action: () => unknown, hint: RegExp][] = [
    ["a rank at a controller", () => decodeChannelMagic(rank.subarray(0, 4)), /a rank's handshake/],
    [
      "a relay at a relay",
      () => decodeHandshake(Uint8Array.from([...encodeChannelMagic(), ...rank.subarray(4)]), [2]),
      /a relay's channel: relays connect to the controller/,
    ],
    ["a browser", () => decodeHandshake(bytes("GET / HTTP/1.1\r\n"), [2]), /an HTTP request/],
    ["a scraper at a controller", () => decodeChannelMagic(bytes("GET ")), /--http listens/],
    ["TLS", () => decodeChannelMagic(Uint8Array.of(0x16, 3, 1, 2)), /begin TLS/],
    ["an HTTP server, asked by a rank", () => decodeAck(bytes("HTTP/1.1"), 2), /an HTTP answer/],
    [
      "an HTTP server, asked by a relay",
      () => decodeRecordHeader((record.set(bytes("HTTP/1.1 400 Bad Request")), record), 1024),
      /an HTTP answer/,
    ],
  ];
  for (const [what, action, hint] of cases) refused(action, what, "magic", hint);
});

Deno.test("stranger: of other bytes nothing is said", () => {
  const { message } = refused(() => decodeChannelMagic(bytes("GETX")), "noise", "magic");
  assertEquals(message, "reading the channel magic: 0x58544547 came, expected 0xf10d17e1");
});
