// The page as files over HTTP.
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { generate } from "../../controller/page/build.ts";
import { servePage } from "../../controller/page/page.ts";

const at = (path: string, init?: RequestInit) =>
  servePage(new Request(`http://controller.test${path}`, init));

/** What the page loads, by its own markup. */
async function parts(): Promise<string[]> {
  const markup = await at("/")!.text();
  return [...markup.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g)].map(([, path]) => path!);
}

Deno.test("page: the files in the repository are what their sources make", async () => {
  const built = await Deno.readTextFile(new URL("../../controller/page/files.ts", import.meta.url));
  assertEquals(built, await generate(), "run `deno task page:build`");
});

Deno.test("page: everything that the markup names is served, with its type", async () => {
  const names = await parts();
  assert(names.length > 5, names.join(" "));
  for (const path of names) {
    const response = at(path);
    assertEquals(response?.status, 200, path);
    assertMatch(response!.headers.get("content-type")!, /^(text\/(css|javascript)|image\/svg)/);
    assert((await response!.text()).length > 100, path);
  }
  assertEquals(at("/page/other.js"), undefined);
  assertEquals(at("/state.json"), undefined);
});

Deno.test("page: a strict policy on every part; nothing inline, nothing from elsewhere", async () => {
  for (const path of ["/", ...await parts()]) {
    const response = at(path)!;
    const policy = response.headers.get("content-security-policy")!;
    assertMatch(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/);
    for (const word of ["frame-ancestors 'none'", "base-uri 'none'", "connect-src 'self'"]) {
      assertStringIncludes(policy, word);
    }
    assert(!/unsafe|data:|https?:/.test(policy), policy);
    assertEquals(response.headers.get("x-content-type-options"), "nosniff");
    await response.body?.cancel();
  }
  const markup = await at("/")!.text();
  assert(!/<script(?![^>]*src=)|\son\w+=|\sstyle=|https?:\/\//.test(markup), "inline or elsewhere");
});

Deno.test("page: what has not changed is not sent again", async () => {
  const first = at("/")!;
  const etag = first.headers.get("etag")!;
  await first.body?.cancel();
  // Compression makes a tag a weak one.
  for (const tags of [etag, `W/${etag}`, `"other", ${etag}`]) {
    const again = at("/", { headers: { "if-none-match": tags } })!;
    assertEquals([again.status, again.body], [304, null]);
  }
  const changed = at("/", { headers: { "if-none-match": '"other"' } })!;
  assertEquals(changed.status, 200);
  await changed.body?.cancel();
});

Deno.test("page: only GET and HEAD", async () => {
  const refused = at("/", { method: "POST", body: "x" })!;
  assertEquals([refused.status, refused.headers.get("allow")], [405, "GET, HEAD"]);
  await refused.body?.cancel();
});
