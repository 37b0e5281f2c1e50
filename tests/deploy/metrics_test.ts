// The dashboard and the alert rules ask for metrics that are really there.
import { assert, assertEquals } from "@std/assert";
import { Session } from "../cluster/session.ts";
import { soon } from "../cluster/waiting.ts";
import { Port } from "../status/watching.ts";
import { type Address, formatAddress } from "../../transport/tcp.ts";

const RULES = new URL("../../deploy/prometheus/alerts.yml", import.meta.url);
const DASHBOARD = new URL("../../deploy/grafana/tierfold.json", import.meta.url);
const DOCS = new URL("../../docs/watching.md", import.meta.url);

/** The metrics that queries of a text name; those of a histogram by the histogram's name. */
function asked(text: string): string[] {
  const names = [...text.matchAll(/\btierfold_[a-z_]+/g)].map(([name]) => name);
  return [...new Set(names.map((name) => name.replace(/_(bucket|count|sum)$/, "")))].sort();
}

/** The metrics that a scrape declares, whether they have values yet or not. */
const declared = (scrape: string) =>
  [...scrape.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name!);

Deno.test("dashboard and alerts name only metrics that a scrape has, the docs all of them", async () => {
  const port = new Port();
  const relay = Promise.withResolvers<Address>();
  await using _session = await Session.start({
    hosts: [[0]],
    controller: port.settings,
    relays: { 0: { http: { hostname: "127.0.0.1", port: 0 }, onHttp: relay.resolve } },
  });
  const address = formatAddress(await soon("HTTP is served", relay.promise));
  const there = new Set([
    ...declared(await (await port.get("/metrics")).text()),
    ...declared(await (await fetch(`http://${address}/metrics`)).text()),
  ]);
  for (const file of [RULES, DASHBOARD]) {
    const names = asked(await Deno.readTextFile(file));
    assert(names.length > 8, `${names}`);
    assertEquals(names.filter((name) => !there.has(name)), []);
  }
  assertEquals(asked(await Deno.readTextFile(DOCS)), [...there].sort());
});

Deno.test("the dashboard's panels lie side by side, each with a query and a title", async () => {
  const { panels } = JSON.parse(await Deno.readTextFile(DASHBOARD));
  const taken = new Set<string>();
  for (const { title, gridPos: { x, y, w, h }, targets, id } of panels) {
    assert(title.length > 0 && targets.length > 0, `panel ${id}`);
    assert(x >= 0 && x + w <= 24, `panel ${id}`);
    for (let column = x; column < x + w; column++) {
      for (let line = y; line < y + h; line++) {
        assert(!taken.has(`${column} ${line}`), `panel ${id} lies on another one`);
        taken.add(`${column} ${line}`);
      }
    }
  }
});

async function run(command: string, args: string[], input = ""): Promise<[number, string]> {
  const child = new Deno.Command(command, {
    args,
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(input));
  await writer.close();
  const { code, stdout, stderr } = await child.output();
  const decoder = new TextDecoder();
  return [code, decoder.decode(stdout) + decoder.decode(stderr)];
}

const promtool = await run("promtool", ["--version"]).then(() => true, () => false);

Deno.test({
  name: `promtool takes the alert rules, and a scrape${
    promtool ? "" : " (skipped: promtool, of Debian's prometheus, is not installed)"
  }`,
  ignore: !promtool,
  fn: async () => {
    const [code, text] = await run("promtool", ["check", "rules", RULES.pathname]);
    assertEquals(code, 0, text);
    const port = new Port();
    await using _session = await Session.start({ hosts: [[0]], controller: port.settings });
    const scrape = await (await port.get("/metrics")).text();
    const [linted, complaints] = await run("promtool", ["check", "metrics"], scrape);
    assertEquals([linted, complaints], [0, ""]);
  },
});
