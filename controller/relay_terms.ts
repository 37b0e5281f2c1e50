/**
 * What a relay's port must know of its session.
 *
 * @module
 */
import { TERMS, type Terms } from "../serve/terms.ts";
import { helloBytes } from "../wire/limits.ts";
import type { ControllerSettings } from "./settings.ts";

/** The terms on which a relay is taken. */
export interface RelayTerms extends Terms {
  readonly salt: Uint8Array;
  /** The most bytes of a frame's data. */
  readonly ceiling: number;
  /** The most bytes of a Hello. */
  readonly helloBytes: number;
  /** How long one record may take from its first byte to its last, in milliseconds. */
  readonly recordMs: number;
}

/** The terms that follow from a controller's settings. */
export function relayTerms(settings: ControllerSettings): RelayTerms {
  const { salt, frameCeilingBytes, worldSize, roundDeadlineMs, terms = TERMS } = settings;
  return {
    ...terms,
    salt,
    ceiling: frameCeilingBytes,
    helloBytes: helloBytes(worldSize),
    recordMs: roundDeadlineMs,
  };
}
