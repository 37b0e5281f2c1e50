// The status page in a browser, of real clusters.
import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { Cluster, type Ranks } from "../cluster/cluster.ts";
import { freePort } from "../delta/sockets.ts";
import { browserTest, TestBrowser } from "./browser.ts";

/** A cluster with an HTTP port that is known beforehand. */
async function start(hosts: readonly (readonly number[])[], more: readonly string[] = []) {
  const http = `127.0.0.1:${freePort()}`;
  return { http, cluster: await Cluster.start(hosts, { args: ["--http", http, ...more] }) };
}

/** Rounds of all ranks. */
async function rounds(count: number, ranks: readonly Ranks[]): Promise<void> {
  for (let i = 0; i < count; i++) {
    await Promise.all(ranks.map((rank) => rank.begin([[i, 1, 2, 3]])));
    for (const rank of ranks) await rank.round();
  }
}

browserTest("a session from its first rank to its end, live", async () => {
  const { http, cluster } = await start([[0, 1], [2]]);
  await using _ = cluster;
  await using browser = await TestBrowser.start();
  const watched = await browser.open(http);
  const { page } = watched;
  await watched.shows("#link-text", "live");
  await watched.shows("#rounds-empty", "No round has closed yet");
  await watched.shows("#arrivals-empty", "as soon as a round has closed");
  await watched.shows("#deltas-empty", "--delta-peers");
  await watched.shows("#passes-empty", "None so far");
  await watched.shows("#kept-empty", "--state DIR");
  await watched.shows("#operator-off", "read-only");
  const ranks = await Promise.all([0, 1, 2].map((rank) => cluster.ranks([rank])));
  await rounds(5, ranks);
  await watched.shows("#f-rounds-value", /^5$/);
  await watched.shows("#f-ranks-value", "3 of 3");
  await watched.shows("#f-kernel-value", "simd");
  await watched.shows("#f-mass-value", /^3$/);
  assertMatch(await watched.text("#f-time-value"), /^[\d.,]+ m?s$/);
  assertEquals(await page.locator("#rounds-plot canvas").count(), 1);
  assertEquals(await page.locator("#arrivals-rows tr").count(), 5);
  await watched.shows("#arrivals-rows", /host-[01], host-[01] \+/);
  await watched.shows("#paces-rows", "host-1");
  assertEquals(await page.locator(".part.rank.live").count(), 3);
  await rounds(1, ranks);
  await watched.shows("#arrivals-rows th", /^5$/);
  await watched.shows("#events-list", "host-1");
  // A relay with its rank is killed: the picture and the events say so, the others go on.
  cluster.relays[1]!.signal("SIGKILL");
  await page.locator(".part.rank.lost").waitFor();
  assertMatch(
    await page.locator(".part.rank.lost").getAttribute("aria-label") ?? "",
    /^Rank 2, lost/,
  );
  await watched.shows("#f-ranks-more", "1 lost");
  await watched.shows("#announcer", "host-1");
  await page.locator('[data-key="rank 2"]').click();
  await watched.shows("#details-title", "Rank 2");
  await watched.shows("#details-list", /lost since .*Why/);
  await rounds(1, ranks.slice(0, 2));
  await watched.shows("#f-mass-value", /^2$/);
  // A killed rank process leaves the session.
  ranks[1]!.signal("SIGKILL");
  await watched.shows("#f-ranks-value", "1 of 3");
  await page.locator('[data-key="rank 1"]:not(.live)').waitFor();
  watched.assertQuiet();
  await cluster.finish([ranks[0]!], [cluster.relays[0]!]);
  await watched.shows("#link-text", /^ended at \d\d:\d\d:\d\d$/);
  assertEquals(watched.elsewhere, []);
});

browserTest("a controller that goes away and comes back", async () => {
  const { http, cluster } = await start([[0]]);
  await using _ = cluster;
  await using browser = await TestBrowser.start();
  const watched = await browser.open(http);
  await watched.shows("#link-text", "live");
  cluster.controller.signal("SIGKILL");
  await watched.shows("#link-text", /^disconnected since \d\d:\d\d:\d\d$/);
  await watched.shows("#stale", /not been heard since.*Trying again/);
  assertNotEquals(await watched.page.locator("html.old").count(), 0);
  assertEquals(await watched.page.isVisible("#f-rounds-value"), true, "what it knew stays");
  const next = cluster.server("next controller", "../../controller.ts", [], {
    args: ["--http", http],
  });
  await next.listens();
  await watched.shows("#link-text", "live");
  assertEquals(await watched.page.isVisible("#stale"), false);
  assertEquals(await watched.page.locator("html.old").count(), 0);
  assertEquals(watched.elsewhere, []);
});

browserTest("names of peers are text and nothing else", async () => {
  const http = `127.0.0.1:${freePort()}`;
  const names = [`<img src=x onerror="alert(1)">`, `"><script>alert(2)</script>`, "n".repeat(200)];
  const relays = Object.fromEntries(names.map((host, i) => [i, { host }]));
  await using _ = await Cluster.start([[0], [1], [2]], { args: ["--http", http] }, relays);
  await using browser = await TestBrowser.start();
  const phone = { width: 320, height: 640 };
  const watched = await browser.open(http, { viewport: phone, colorScheme: "dark" });
  const { page } = watched;
  await watched.shows("#link-text", "live");
  for (const [rank, name] of names.entries()) {
    await page.locator(`[data-key="host ${rank}"]`).click();
    await watched.shows("#details-title", `Host ${name}`);
    await watched.shows("#events-list", name);
  }
  assertEquals(await page.locator("body img:not([src='/page/icon.svg'])").count(), 0);
  assertEquals(await page.locator("body script").count(), 0);
  await watched.assertFits();
  await watched.assertAccessible();
  watched.assertQuiet();
});

browserTest("with the keyboard alone, in light and dark, wide and narrow", async () => {
  const { http, cluster } = await start([[0, 1], [2]]);
  await using _ = cluster;
  const ranks = await cluster.ranks([0, 1]);
  const other = await cluster.ranks([2]);
  for (let i = 0; i < 3; i++) {
    await ranks.begin([[i], [i]]);
    await other.begin([[i]]);
    await Promise.all([ranks.round(), other.round()]);
  }
  await using browser = await TestBrowser.start();
  const grounds: string[] = [];
  for (
    const [colorScheme, width] of [["light", 1280], ["dark", 320], ["dark", 1280]] as const
  ) {
    const watched = await browser.open(http, {
      viewport: { width, height: 700 },
      colorScheme,
    });
    await watched.shows("#f-rounds-value", /^3$/);
    await watched.assertFits();
    if (grounds.length < 2) await watched.assertAccessible();
    grounds.push(await watched.page.evaluate("getComputedStyle(document.body).backgroundColor"));
    watched.assertQuiet();
    await watched.page.close();
  }
  const [light, narrowDark, dark] = grounds;
  assertEquals(narrowDark, dark);
  assertNotEquals(light, dark);

  const watched = await browser.open(http, { reducedMotion: "reduce" });
  const { page } = watched;
  await watched.shows("#f-rounds-value", /^3$/);
  const focused = () =>
    page.evaluate<string>(
      "document.activeElement.dataset.key ?? (document.activeElement.id || " +
        "document.activeElement.className || document.activeElement.textContent)",
    );
  const walk: string[] = [];
  for (let i = 0; i < 8; i++) {
    await page.keyboard.press("Tab");
    walk.push(await focused());
  }
  assertEquals(walk.slice(0, 4), ["skip", "controller", "only-troubles", "scroll"]);
  assert(walk.includes("state.json"), walk.join(", "));
  await page.focus('[data-key="controller"]');
  for (
    const [key, part, title] of [
      ["ArrowRight", "host 0", "Host host-0"],
      ["ArrowRight", "rank 0", "Rank 0"],
      ["End", "rank 2", "Rank 2"],
      ["ArrowUp", "host 2", "Host host-1"],
      ["Home", "controller", "Controller"],
    ]
  ) {
    await page.keyboard.press(key!);
    assertEquals(await focused(), part);
    assertEquals(await watched.text("#details-title"), title);
  }
  const outline = await page.evaluate<string>(
    "getComputedStyle(document.activeElement.firstElementChild).strokeWidth",
  );
  assertEquals(outline, "4px", "what has the focus is seen");
  assertEquals(
    await page.evaluate("getComputedStyle(document.querySelector('#link .dot')).animationName"),
    "none",
  );
  await page.focus("#only-troubles");
  await page.keyboard.press("Space");
  await watched.shows("#events-empty", "Nothing to tell");
  await cluster.finish([ranks, other]);
});

browserTest(
  "the operator: a wrong token, the right one, a rank declared dead, the end",
  async () => {
    const token = "the-token-of-this-test";
    const http = `127.0.0.1:${freePort()}`;
    const file = await Deno.makeTempFile();
    try {
      await Deno.writeTextFile(file, token);
      await using cluster = await Cluster.start([[0], [1]], {
        args: ["--http", http, "--operator-token-file", file],
        permissions: ["--allow-net=127.0.0.1", "--allow-env=TIERFOLD_*", `--allow-read=${file}`],
      });
      const [first, hanging] = await Promise.all([cluster.ranks([0]), cluster.ranks([1])]);
      await using browser = await TestBrowser.start();
      const watched = await browser.open(http);
      const { page } = watched;
      await page.locator('[data-key="rank 1"]').click();
      assertEquals(await page.isVisible("#declare-dead"), false, "locked");
      await page.fill("#operator-token", "another-token-altogether");
      await page.keyboard.press("Enter");
      await watched.shows("#operator-said", "not the operator's token");
      assertEquals(watched.errors.splice(0).length, 1, "the browser tells of the refusal");
      await page.fill("#operator-token", token);
      await page.keyboard.press("Enter");
      await page.locator("#end-session").waitFor();
      assertEquals(await page.inputValue("#operator-token"), "");
      assertEquals(await page.evaluate("localStorage.length + sessionStorage.length"), 0);
      assertEquals(await page.evaluate("document.cookie"), "");
      await first.begin([[1]]);
      await page.locator("#declare-dead").click();
      await watched.shows("#confirm-title", "Declare rank 1 dead?");
      await watched.assertAccessible();
      await page.keyboard.press("Escape");
      await watched.shows("#f-ranks-value", "2 of 2");
      await page.locator("#declare-dead").click();
      await page.locator("#confirm-yes").click();
      await watched.shows("#f-ranks-value", "1 of 2");
      await watched.shows("#details-list", "the operator declared it dead");
      assertEquals(await first.round(), { masses: [1], values: [[1]] });
      await hanging.begin([[9]]);
      await hanging.failed("declared rank 1 dead");
      await page.locator("#end-session").click();
      await page.locator("#confirm-yes").click();
      await watched.shows("#link-text", /^ended at/);
      await cluster.controller.ends(0);
      assertEquals(watched.elsewhere, []);
    } finally {
      await Deno.remove(file);
    }
  },
);
