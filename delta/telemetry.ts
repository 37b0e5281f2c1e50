/**
 * What a DWE bus tells of itself.
 *
 * @module
 */

/** Counters since the start, and what came last. */
export interface DweTelemetry {
  /** Fragments put on outbound queues, once per peer. */
  queued: number;
  /** Fragments written to peers. */
  sent: number;
  /** Whole fragments that came in, whatever became of them. */
  received: number;
  /** Fragments whose values were added to the weights. */
  applied: number;
  /** Fragments that were refused. */
  rejected: number;
  /** Session of the last fragment that went out or was believed. */
  lastSession: string | undefined;
  /** Bytes of that fragment. */
  lastFragmentBytes: number;
  /** The last thing that went wrong, a full queue included. */
  lastError: string | undefined;
}

/** Telemetry of a bus that has done nothing yet. */
export function newTelemetry(): DweTelemetry {
  return {
    queued: 0,
    sent: 0,
    received: 0,
    applied: 0,
    rejected: 0,
    lastSession: undefined,
    lastFragmentBytes: 0,
    lastError: undefined,
  };
}
