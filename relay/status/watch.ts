/**
 * Everything by which a relay is watched: its state and metrics over HTTP.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";
import { VERSION } from "../../cli/version.ts";
import type { RoundDeadline } from "../../fold/deadline.ts";
import { type HttpServer, serveHttp } from "../../observe/http.ts";
import { watchRoutes } from "../../observe/routes.ts";
import { RoundTracer } from "../../observe/tracing.ts";
import { formatAddress } from "../../transport/tcp.ts";
import type { RelaySettings } from "../settings.ts";
import { relayMetrics } from "./metrics.ts";
import { RelayView } from "./relay_view.ts";
import { tracedRound } from "./traced.ts";

/** Watches one relay. */
export class RelayWatch {
  /** What the relay tells of its rounds. */
  readonly view: RelayView;
  readonly #server: HttpServer | undefined;

  private constructor(view: RelayView, server: HttpServer | undefined) {
    this.view = view;
    this.#server = server;
  }

  /**
   * Watches a relay, where it is shown over HTTP or traced.
   *
   * @param kernel The name of what sums.
   * @throws {TransportError} when the HTTP address cannot be had.
   */
  static start(
    settings: RelaySettings,
    kernel: string,
    deadline: RoundDeadline,
  ): RelayWatch | undefined {
    const { http, onHttp, host, ranks, worldSize } = settings;
    const tracer = RoundTracer.of(settings.salt);
    if (http === undefined && tracer === undefined) return undefined;
    const view = new RelayView({
      version: VERSION,
      host,
      ranks,
      worldSize,
      kernel,
      deadline,
      clock: () => performance.timeOrigin + performance.now(),
    });
    if (tracer !== undefined) {
      view.listen({ round: (round) => tracer.round(tracedRound(host, round)) });
    }
    if (http === undefined) return new RelayWatch(view, undefined);
    const server = serveHttp(http, [watchRoutes(view, relayMetrics(view))]);
    getLogger(["tierfold", "relay"]).info("serving HTTP on {address}", {
      address: formatAddress(server.address),
    });
    onHttp?.(server.address);
    return new RelayWatch(view, server);
  }

  /** Finishes the requests under way, within seconds, and stops. */
  async close(): Promise<void> {
    await this.#server?.close();
  }
}
