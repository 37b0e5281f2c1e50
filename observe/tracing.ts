/**
 * OpenTelemetry spans of rounds, where the process exports them: in Deno with OTEL_DENO=true, elsewhere
 * with a tracer provider that was registered before.
 *
 * The wire has no room for a trace's context, so everybody derives it: round n of a session belongs to the
 * trace whose id is the first 16 bytes of HMAC-SHA256(salt, "tierfold trace n"), below a span whose id are
 * the next 8 bytes. Nobody exports that span; it only ties ranks, relays and controller together. Each
 * counts rounds from its own start: the spans of a process that joined later are in the traces of their own
 * count.
 *
 * @module
 */
import {
  type Attributes,
  type Context,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  type Span,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from "@opentelemetry/api";
import { createHmac } from "node:crypto";
import manifest from "../deno.json" with { type: "json" };

/** A part of a round; times in milliseconds since 1970. */
export interface TracedPart {
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
}

/** A round as one process saw it. */
export interface TracedRound extends TracedPart {
  /** Its number, from 0. */
  readonly round: number;
  /** What it was made of. */
  readonly parts?: readonly TracedPart[];
  /** Why it failed; undefined when it did not. */
  readonly failure?: string | undefined;
}

/** Exports rounds as spans, after they happened. */
export class RoundTracer {
  readonly #tracer: Tracer;
  readonly #salt: Uint8Array;

  private constructor(tracer: Tracer, salt: Uint8Array) {
    this.#tracer = tracer;
    this.#salt = salt;
  }

  /**
   * A tracer; undefined when nobody takes its spans, so that nothing is spent on them.
   *
   * @param salt The session salt, 16 bytes.
   */
  static of(salt: Uint8Array): RoundTracer | undefined {
    const provider = trace.getTracerProvider();
    const name = "tierfold";
    if (
      provider instanceof ProxyTracerProvider && provider.getDelegateTracer(name) === undefined
    ) return undefined;
    return new RoundTracer(trace.getTracer(name, manifest.version), salt);
  }

  /** Exports a round and its parts. */
  round(round: TracedRound): void {
    const span = this.#part(round, this.#context(round.round));
    const inside = trace.setSpan(ROOT_CONTEXT, span);
    for (const part of round.parts ?? []) this.#part(part, inside).end(part.endMs);
    if (round.failure !== undefined) {
      span.setStatus({ code: SpanStatusCode.ERROR, message: round.failure });
    }
    span.end(round.endMs);
  }

  #part({ name, startMs, attributes }: TracedPart, parent: Context): Span {
    return this.#tracer.startSpan(name, { startTime: startMs, attributes }, parent);
  }

  #context(round: number): Context {
    const id = createHmac("sha256", this.#salt).update(`tierfold trace ${round}`).digest("hex");
    return trace.setSpanContext(ROOT_CONTEXT, {
      traceId: id.slice(0, 32),
      spanId: id.slice(32, 48),
      traceFlags: TraceFlags.SAMPLED,
      isRemote: true,
    });
  }
}
