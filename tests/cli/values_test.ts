import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { Ajv2020 } from "ajv/2020";
import type { z } from "zod";
import { valueSchema } from "../../cli/config_schema.ts";
import {
  byteSize,
  choice,
  duration,
  formatBytes,
  formatDuration,
  formatHostPort,
  formatRanks,
  hostPort,
  rankSet,
  text,
  wholeNumber,
  wholeNumberOrAuto,
  yesNo,
} from "../../cli/values.ts";

interface Case {
  readonly name: string;
  readonly schema: z.ZodType<unknown>;
  /** Input and value. */
  readonly takes: readonly (readonly [unknown, unknown])[];
  /** Input and a part of the message. */
  readonly refuses: readonly (readonly [unknown, string])[];
}

const at = (hostname: string, port: number) => ({ hostname, port });

const cases: readonly Case[] = [
  {
    name: "hostPort to connect to",
    schema: hostPort(),
    takes: [
      ["127.0.0.1:7070", at("127.0.0.1", 7070)],
      ["node-1.example_net.org:65535", at("node-1.example_net.org", 65535)],
      ["localhost:1", at("localhost", 1)],
      ["[::1]:7070", at("::1", 7070)],
      ["[fe80::1]:7070", at("fe80::1", 7070)],
    ],
    refuses: [
      ["127.0.0.1:0", "port 0"],
      ["localhost", "the port is missing"],
      ["localhost:", "a port is a number"],
      ["localhost:65536", "a port is a number"],
      ["localhost:7x", "a port is a number"],
      ["localhost:-1", "a port is a number"],
      [":7070", "the host is missing"],
      ["::1:7070", "in brackets"],
      ["::1", "in brackets"],
      ["[127.0.0.1]:7070", "brackets hold an IPv6 address"],
      ["[::1]", "expected HOST:PORT"],
      ["256.1.1.1:7070", "neither a name nor an address"],
      ["1.2.3:7070", "neither a name nor an address"],
      ["a b:7070", "neither a name nor an address"],
      ["http://a:7070", "expected HOST:PORT"],
      ["", "expected HOST:PORT"],
      [null, "expected HOST:PORT"],
    ],
  },
  {
    name: "hostPort to listen at",
    schema: hostPort({ port0: true }),
    takes: [["127.0.0.1:0", at("127.0.0.1", 0)], ["[::]:0", at("::", 0)]],
    refuses: [["0", "the port is missing"]],
  },
  {
    name: "rankSet",
    schema: rankSet(16),
    takes: [
      ["0", [0]],
      ["0-3", [0, 1, 2, 3]],
      ["0,1,5", [0, 1, 5]],
      ["0-2,5,7-8", [0, 1, 2, 5, 7, 8]],
      ["0, 1", [0, 1]],
      ["3-3", [3]],
      [7, [7]],
      [[0, 1, 5], [0, 1, 5]],
      ["15", [15]],
    ],
    refuses: [
      ["", "expected rank ids"],
      ["0,", "expected rank ids"],
      ["a", "expected rank ids"],
      ["-1", "expected rank ids"],
      ["0-", "expected rank ids"],
      ["0.5", "expected rank ids"],
      [[], "expected rank ids"],
      [{}, "expected rank ids"],
      ["3-1", "runs backwards"],
      ["1,0", "0 follows 1"],
      ["0,0", "0 follows 0"],
      ["0-3,2", "2 follows 3"],
      ["16", "above the highest one, 15"],
      ["0-999999999", "above the highest one, 15"],
    ],
  },
  {
    name: "byteSize",
    schema: byteSize(64, 2 ** 32),
    takes: [
      ["1000000", 1_000_000],
      [1000, 1000],
      ["64MiB", 64 * 2 ** 20],
      ["64 MiB", 64 * 2 ** 20],
      ["1.5GiB", 1.5 * 2 ** 30],
      ["1kB", 1000],
      ["1MB", 1_000_000],
      ["64B", 64],
      ["4GiB", 2 ** 32],
    ],
    refuses: [
      ["63", "between 64 and"],
      ["5GiB", "between 64 and"],
      ["100.5", "no whole number of bytes"],
      ["-64", "expected a size"],
      ["64mib", "expected a size"],
      ["64 constructor", "expected a size"],
      ["1e9", "expected a size"],
      ["", "expected a size"],
      [true, "expected a size"],
    ],
  },
  {
    name: "duration",
    schema: duration(),
    takes: [["500ms", 500], ["30s", 30_000], ["5m", 300_000], ["2h", 7_200_000], [
      "1.001s",
      1001,
    ], ["1.5m", 90_000]],
    refuses: [
      ["30", "expected a time"],
      [30, "expected a time"],
      ["0s", "whole milliseconds"],
      ["0.5ms", "whole milliseconds"],
      ["597h", "whole milliseconds"],
      ["-1s", "expected a time"],
      ["1d", "expected a time"],
      ["s", "expected a time"],
    ],
  },
  {
    name: "wholeNumber",
    schema: wholeNumber(1, 8),
    takes: [["1", 1], ["8", 8], [3, 3], ["03", 3]],
    refuses: [
      ["0", "from 1 to 8"],
      ["9", "from 1 to 8"],
      ["1.5", "from 1 to 8"],
      [
        Infinity,
        "from 1 to 8",
      ],
      ["1e0", "from 1 to 8"],
      ["x".repeat(500), "..."],
    ],
  },
  {
    name: "wholeNumberOrAuto",
    schema: wholeNumberOrAuto(0, 8),
    takes: [["auto", "auto"], ["0", 0], [8, 8]],
    refuses: [["Auto", "auto or a whole number from 0 to 8"], [9, "auto or"]],
  },
  {
    name: "choice",
    schema: choice(["plain", "simd"]),
    takes: [["plain", "plain"]],
    refuses: [["Plain", "one of plain, simd"], ["", "one of"], [1, "one of"]],
  },
  {
    name: "yesNo",
    schema: yesNo(),
    takes: [[true, true], ["true", true], ["1", true], ["no", false], [0, false], [false, false]],
    refuses: [["maybe", "true or false"], ["", "true or false"], ["toString", "true or false"]],
  },
  {
    name: "text",
    schema: text("a host name", 4),
    takes: [["abcd", "abcd"], ["éé", "éé"]],
    refuses: [["", "a host name of 1 to 4 bytes"], ["ééé", "1 to 4 bytes"], [null, "a host name"]],
  },
];

for (const { name, schema, takes, refuses } of cases) {
  Deno.test(`values: ${name}`, () => {
    const described = new Ajv2020({ strict: true, allowUnionTypes: true }).compile(
      valueSchema(schema),
    );
    for (const [input, value] of takes) {
      assertEquals(schema.parse(input), value, `${JSON.stringify(input)}`);
      assert(described(input), `its JSON Schema refuses ${JSON.stringify(input)}`);
    }
    for (const input of [{}, null]) assert(!described(input), "its JSON Schema takes anything");
    for (const [input, message] of refuses) {
      const result = schema.safeParse(input);
      assertEquals(result.success, false, `took ${JSON.stringify(input)}`);
      assertStringIncludes(result.error?.issues[0]?.message ?? "", message);
    }
  });
}

Deno.test("values: what is shown can be typed again", () => {
  for (const typed of ["127.0.0.1:0", "[::1]:70", "a.b:1"]) {
    assertEquals(formatHostPort(hostPort({ port0: true }).parse(typed)), typed);
  }
  for (const typed of ["0", "0-3", "0-1,3,5-6"]) {
    assertEquals(formatRanks(rankSet(16).parse(typed)), typed);
  }
  for (const typed of ["0", "1000", "64MiB", "3KiB", "1GiB", "1025"]) {
    assertEquals(formatBytes(byteSize(0, 2 ** 32).parse(typed)), typed);
  }
  for (const typed of ["1ms", "1500ms", "90s", "5m", "2h"]) {
    assertEquals(formatDuration(duration().parse(typed)), typed);
  }
});
