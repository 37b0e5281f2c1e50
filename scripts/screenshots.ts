/**
 * Takes the pictures of the status page in docs/images/: a real cluster trains on digits, one of its
 * hosts is lost, a replica follows by deltas, federated peers contribute; a browser looks on.
 *
 *     deno task screenshots
 *
 * @module
 */
import { type Browser, chromium } from "playwright-core";
import { Child } from "../bench/child.ts";
import { signedHeaders } from "../controller/passes/auth.ts";
import { FederatedClient } from "../controller/passes/client.ts";

const CHROMIUM = "/usr/bin/chromium";
const START_MS = 60_000;
const ROUND_MS = 120_000;
const LOOPBACK = "127.0.0.1";

/** Hosts and their ranks. */
const HOSTS = [["atlas", [0, 1]], ["birch", [2, 3]], ["cedar", [4, 5]]] as const;
const WORLD_SIZE = 6;
/** Rounds before the last host is lost, and before the pictures are taken. */
const ROUNDS = { lost: 20, pictures: 32, all: 400 };

const root = (path: string) => new URL(`../${path}`, import.meta.url).pathname;
const salt = crypto.getRandomValues(new Uint8Array(16));
/** What every process is told; fresh for every run. */
const SECRETS = {
  TIERFOLD_SALT: salt.toHex(),
  TIERFOLD_OPERATOR_TOKEN: crypto.randomUUID(),
  AXIOM_FLEET_KEY: crypto.randomUUID(),
};

const children: Child[] = [];

function start(name: string, permissions: readonly string[], args: readonly string[]): Child {
  const command = [Deno.execPath(), "run", "--quiet", "--no-prompt", ...permissions, ...args];
  const child = new Child({ name, command, env: { ...SECRETS, NO_COLOR: "1" } });
  children.push(child);
  return child;
}

/** Sends a rank's losses as its rounds go by. */
async function follow(rank: number, child: Child, http: string): Promise<void> {
  const url = `http://${http}/losses`;
  for (;;) {
    const line = await child.expect('{"kind":"round",', ROUND_MS);
    const { round, loss } = JSON.parse(`{${line}`);
    const body = new TextEncoder().encode(JSON.stringify({ rank, step: round, loss }));
    const headers = signedHeaders({ method: "POST", path: "/losses", body }, salt);
    await (await fetch(url, { method: "POST", headers, body })).body?.cancel();
  }
}

async function closedRounds(http: string): Promise<number> {
  return (await (await fetch(`http://${http}/state.json`)).json()).totals.rounds;
}

async function untilRound(http: string, rounds: number): Promise<void> {
  while (await closedRounds(http) < rounds) await new Promise((go) => setTimeout(go, 200));
}

/** One pass that is complete, and one that still collects. */
async function contribute(http: string): Promise<void> {
  const url = `http://${http}`;
  const [ada, ben] = ["ada", "ben"].map((peer) => new FederatedClient({ url, salt, peer }));
  for (const [round, peers] of [[1, [ada!, ben!]], [2, [ada!]]] as const) {
    const key = { round, initiator: "ada" };
    await ada!.start({ ...key, expected: 2, layers: [{ name: "w", shape: [3] }] });
    for (const peer of peers) {
      const values = Float32Array.of(1, 2, 3);
      await peer.contribute(`${round}-ada`, "w", { shape: [3], numSamples: 10, values });
    }
  }
}

/** One picture, as wide as the window and as high as a part of the page. */
interface Picture {
  readonly name: string;
  readonly width: number;
  readonly scheme: "light" | "dark";
  /** What is chosen in the topology. */
  readonly choice: string;
  /** What it starts with; the top of the page where there is none. */
  readonly from?: string;
  /** What it ends with. */
  readonly until: string;
}

const PICTURES: readonly Picture[] = [
  { name: "status-light", width: 1280, scheme: "light", choice: "rank 5", until: "#loss" },
  { name: "status-dark", width: 1280, scheme: "dark", choice: "rank 5", until: "#loss" },
  {
    name: "status-arrivals",
    width: 1280,
    scheme: "light",
    choice: "rank 5",
    from: "section:has(#arrivals-table)",
    until: "section:has(#arrivals-table)",
  },
  {
    name: "status-events",
    width: 1280,
    scheme: "dark",
    choice: "rank 5",
    from: "section:has(#events-list)",
    until: "main",
  },
  { name: "status-phone", width: 390, scheme: "dark", choice: "host 0", until: "#rounds-plot" },
];

/** Room around what a picture shows, in pixels. */
const MARGIN = 16;

async function take(browser: Browser, http: string, picture: Picture): Promise<void> {
  const { name, width, scheme, choice, from, until } = picture;
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: scheme,
  });
  const page = await context.newPage();
  await page.goto(`http://${http}/`);
  await page.locator(`.part[data-key="${choice}"]`).click();
  await page.evaluate("document.activeElement.blur()");
  await page.locator("#loss-plot canvas").waitFor();
  const edge = (selector: string, side: "top" | "bottom") =>
    page.evaluate<number>(
      `document.querySelector("${selector}").getBoundingClientRect().${side} + scrollY`,
    );
  const y = from === undefined ? 0 : await edge(from, "top") - MARGIN;
  const height = await edge(until, "bottom") + MARGIN - y;
  const path = root(`docs/images/${name}.png`);
  await page.screenshot({ path, fullPage: true, clip: { x: 0, y, width, height } });
  await context.close();
  console.log(`docs/images/${name}.png`);
}

async function main(): Promise<void> {
  const state = await Deno.makeTempDir();
  const listener = Deno.listen({ hostname: LOOPBACK, port: 0 });
  const http = `${LOOPBACK}:${listener.addr.port}`;
  listener.close();
  const net = `--allow-net=${LOOPBACK}`;
  try {
    const replica = start("replica", [net, "--allow-env=AXIOM_*"], [
      ...[root("examples/replica.ts"), "--listen", `${LOOPBACK}:0`, "--http", `${LOOPBACK}:0`],
    ]);
    const follower = await replica.expect("listening ", START_MS);
    const controller = start("controller", [
      ...[net, "--allow-env=TIERFOLD_*,AXIOM_*", "--allow-read", `--allow-write=${state}`],
    ], [
      ...[root("controller.ts"), "--world-size", `${WORLD_SIZE}`, "--http", http],
      ...["--state", state, "--delta-peers", follower],
    ]);
    const address = await controller.expect("listening ", START_MS);
    const relays: Child[] = [];
    const losses: Promise<void>[] = [];
    for (const [host, ranks] of HOSTS) {
      const relay = start(`relay ${host}`, [net, "--allow-env=TIERFOLD_*"], [
        ...[root("relay.ts"), "--host", host, "--ranks", ranks.join(",")],
        ...["--world-size", `${WORLD_SIZE}`, "--controller", address],
      ]);
      relays.push(relay);
      const place = await relay.expect("listening ", START_MS);
      for (const rank of ranks) {
        const child = start(`rank ${rank}`, [net, "--allow-env=TIERFOLD_SALT"], [
          ...[root("examples/digits/rank.ts"), place, `${rank}`, `${WORLD_SIZE}`],
          ...[`${ROUNDS.all}`, "1"],
        ]);
        // A rank's end ends its losses, no more.
        losses.push(follow(rank, child, http).catch(() => {}));
      }
    }
    await untilRound(http, ROUNDS.lost);
    await contribute(http);
    relays.at(-1)!.kill("SIGKILL");
    await untilRound(http, ROUNDS.pictures);
    const browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
    });
    await Deno.mkdir(root("docs/images"), { recursive: true });
    for (const picture of PICTURES) await take(browser, http, picture);
    await browser.close();
    for (const child of children) child.kill("SIGKILL");
    await Promise.all(losses);
  } finally {
    for (const child of children) child.kill("SIGKILL");
    await Promise.all(children.map((child) => child.finish()));
    await Deno.remove(state, { recursive: true });
  }
}

if (import.meta.main) await main();
