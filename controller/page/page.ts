/**
 * The status page over HTTP: a page, its style, its scripts. It reads /state.json and /events, and loads
 * nothing from anywhere else.
 *
 * @module
 */
import { createHash } from "node:crypto";
import uplotCss from "uplot/dist/uPlot.min.css" with { type: "text" };
import uplotJs from "uplot/dist/uPlot.iife.min.js" with { type: "text" };
import { PAGE_FILES } from "./files.ts";

const TYPES = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  svg: "image/svg+xml",
} as const;

/** What is served: the page at /, everything else below /page/. */
const FILES: ReadonlyMap<string, string> = new Map([
  ...Object.entries(PAGE_FILES),
  ["uplot.css", uplotCss],
  ["uplot.js", uplotJs],
]);

/** Only what this server sends is run, shown or asked; no other page may frame this one. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");

const HEADERS = {
  "content-security-policy": POLICY,
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=()",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  // Asked for again at every visit, sent again only when it differs.
  "cache-control": "no-cache",
} as const;

function tagOf(text: string): string {
  return `"${createHash("sha256").update(text).digest("base64url").slice(0, 22)}"`;
}

/** Whether If-None-Match names a tag; a proxy or a compression may have made it a weak one. */
function names(header: string | null, tag: string): boolean {
  return header?.split(",").some((one) => one.trim().replace(/^W\//, "") === tag) ?? false;
}

/** Answers requests for the page and its parts; undefined for all others. */
export function servePage(request: Request): Response | undefined {
  const { pathname } = new URL(request.url);
  const name = pathname === "/" ? "index.html" : /^\/page\/(.+)$/.exec(pathname)?.[1];
  const text = name === undefined ? undefined : FILES.get(name);
  if (name === undefined || text === undefined) return undefined;
  if (request.method !== "GET" && request.method !== "HEAD") {
    return new Response("only GET and HEAD are answered here\n", {
      status: 405,
      headers: { ...HEADERS, allow: "GET, HEAD" },
    });
  }
  const etag = tagOf(text);
  const headers = { ...HEADERS, etag };
  if (names(request.headers.get("if-none-match"), etag)) {
    return new Response(null, { status: 304, headers });
  }
  const type = TYPES[name.slice(name.lastIndexOf(".") + 1) as keyof typeof TYPES];
  return new Response(text, { headers: { ...headers, "content-type": type } });
}
