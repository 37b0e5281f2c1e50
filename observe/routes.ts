/**
 * What relay and controller answer over HTTP to those who watch: /healthz, /readyz, /metrics, /state.json.
 *
 * @module
 */
import type { HttpHandler } from "./http.ts";

/** What is shown. */
export interface Watchable {
  /** Why it is not ready, a sentence each; none when it is. */
  readonly notReady: readonly string[];
  /** What /state.json shows. */
  document(): unknown;
}

/** Metrics as Prometheus reads them. */
export interface MetricsSource {
  /** The type of the text, with the version of the format. */
  readonly contentType: string;
  /** The text. */
  metrics(): Promise<string>;
}

const headers = { "cache-control": "no-store" };

function text(status: number, lines: readonly string[]): Response {
  return new Response(lines.map((line) => `${line}\n`).join(""), {
    status,
    headers: { ...headers, "content-type": "text/plain; charset=utf-8" },
  });
}

/** Answers GET only, and HEAD with it. */
function readOnly(
  request: Request,
  answer: () => Response | Promise<Response>,
): Response | Promise<Response> {
  if (request.method === "GET" || request.method === "HEAD") return answer();
  return new Response(null, { status: 405, headers: { allow: "GET, HEAD" } });
}

/**
 * Answers the four paths. Whoever can connect may read them: they show nothing secret and change nothing.
 *
 *     /healthz      200 as long as the process answers
 *     /readyz       200 when rounds can run; else 503, and why, a line each
 *     /metrics      Prometheus' text format
 *     /state.json   the state document
 */
export function watchRoutes(watched: Watchable, metrics: MetricsSource): HttpHandler {
  const answers: Record<string, () => Response | Promise<Response>> = {
    "/healthz": () => text(200, ["ok"]),
    "/readyz": () => {
      const { notReady } = watched;
      return notReady.length === 0 ? text(200, ["ready"]) : text(503, notReady);
    },
    "/metrics": async () =>
      new Response(await metrics.metrics(), {
        headers: { ...headers, "content-type": metrics.contentType },
      }),
    "/state.json": () => Response.json(watched.document(), { headers }),
  };
  return (request) => {
    const answer = answers[new URL(request.url).pathname];
    return answer === undefined ? undefined : readOnly(request, answer);
  };
}
