/**
 * Everything by which a controller is watched: the state, its changes, the metrics.
 *
 * @module
 */
import { VERSION } from "../../cli/version.ts";
import type { RoundDeadline } from "../../fold/deadline.ts";
import { ChangeFeed } from "../../observe/change_feed.ts";
import type { HttpHandler } from "../../observe/http.ts";
import { watchRoutes } from "../../observe/routes.ts";
import { type PassView, STATE_LIMITS } from "../../observe/state.ts";
import { OperatorDesk } from "../operator/desk.ts";
import { RoundTracer } from "../../observe/tracing.ts";
import type { ControllerSettings } from "../settings.ts";
import type { Sidelines } from "../sidelines.ts";
import type { SessionState } from "../state/session_state.ts";
import { LossIntake } from "./loss_intake.ts";
import { controllerMetrics } from "./metrics.ts";
import { SessionView } from "./session_view.ts";
import { tracedRound } from "./traced.ts";

/** Watches one session. */
export class Watch {
  /** What the controller tells of its rounds. */
  readonly view: SessionView;
  /** What answers over HTTP. */
  readonly handlers: readonly HttpHandler[];
  readonly #feed: ChangeFeed;
  /** What is there beside the rounds, once it has started. */
  #sidelines: Sidelines | undefined;
  #state: SessionState | undefined;
  #declareDead: ((rank: number) => boolean) | undefined;

  private constructor(
    settings: ControllerSettings,
    kernel: string,
    deadline: RoundDeadline,
    tracer: RoundTracer | undefined,
  ) {
    const { worldSize, frameCeilingBytes, salt, minRanks = 1 } = settings;
    const view = this.view = new SessionView({
      session: crypto.randomUUID(),
      version: VERSION,
      worldSize,
      minRanks,
      kernel,
      frameCeilingBytes,
      deadline,
      clock: () => performance.timeOrigin + performance.now(),
      passes: () => this.#passes(),
      deltas: () => this.#deltas(),
      durability: () => this.#state?.durability ?? null,
    });
    if (tracer !== undefined) view.listen({ round: (round) => tracer.round(tracedRound(round)) });
    this.#feed = new ChangeFeed(view);
    const losses = new LossIntake(view.losses, salt);
    const desk = new OperatorDesk(settings.operator?.token, {
      end: () => {
        view.note("session", "warning", "the operator ends the session");
        settings.operator?.end();
      },
      declareDead: (rank) => {
        const declared = this.#declareDead?.(rank) === true;
        if (declared) view.declaredDead(rank);
        return declared;
      },
    });
    this.handlers = [
      watchRoutes(view, controllerMetrics(view)),
      (request) => this.#events(request),
      (request) => losses.handle(request),
      (request) => desk.handle(request),
    ];
  }

  /**
   * Watches a session, where it is shown over HTTP or traced.
   *
   * @param kernel The name of what sums.
   */
  static of(
    settings: ControllerSettings,
    kernel: string,
    deadline: RoundDeadline,
  ): Watch | undefined {
    const tracer = RoundTracer.of(settings.salt);
    if (settings.sidelines?.http === undefined && tracer === undefined) return undefined;
    return new Watch(settings, kernel, deadline, tracer);
  }

  /** Shows these too, from here on. */
  attach(sidelines: Sidelines | undefined, state: SessionState | undefined): void {
    this.#sidelines = sidelines;
    this.#state = state;
    if (state !== undefined) {
      state.onCheckpoint = (level, text) => this.view.note("checkpoint", level, text);
    }
  }

  /** Steers this session, from here on, as far as the operator may. */
  steer(session: { declareDead(rank: number): boolean }): void {
    this.#declareDead = (rank) => session.declareDead(rank);
  }

  /** Ends the streams of those who watch. */
  close(): void {
    this.#feed.close();
  }

  #events(request: Request): Response | undefined {
    if (new URL(request.url).pathname !== "/events") return undefined;
    if (request.method !== "GET") {
      return new Response(null, { status: 405, headers: { allow: "GET" } });
    }
    return this.#feed.open() ??
      new Response(`${this.#feed.readers} streams are open already; try again later\n`, {
        status: 503,
        headers: { "retry-after": "5" },
      });
  }

  #passes(): PassView[] | null {
    const { passes } = this.#sidelines ?? {};
    if (passes === undefined) return null;
    return passes.list().slice(-STATE_LIMITS.passes).map((pass) => ({
      key: pass.key,
      phase: PHASES[pass.state.kind],
      reason: pass.state.kind === "Failed" ? pass.state.reason : null,
      received: pass.received,
      expected: pass.expected,
      startedAtMs: pass.started_at_ms,
      deadlineAtMs: pass.deadline_at_ms,
    }));
  }

  #deltas(): ReturnType<SessionView["fields"]>["deltas"] {
    const { deltas } = this.#sidelines ?? {};
    if (deltas === undefined) return null;
    return (deltas.telemetry?.peers ?? []).map(({ lastError, ...peer }) => ({
      ...peer,
      lastError: lastError ?? null,
    }));
  }
}

const PHASES = {
  Pending: "collecting",
  CollectingGradients: "collecting",
  Aggregating: "aggregating",
  Complete: "complete",
  Failed: "failed",
} as const;
