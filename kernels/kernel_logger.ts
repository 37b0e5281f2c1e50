/**
 * What the kernels report, and to whom.
 *
 * @module
 */
import { getLogger } from "@logtape/logtape";

/** What kernels ask of a logger: a message with {names} of values. LogTape's loggers have it. */
export interface KernelLogger {
  /** Reports something that went as it should. */
  info(message: string, values: Record<string, unknown>): void;
  /** Reports something that did not. */
  warn(message: string, values: Record<string, unknown>): void;
}

/** The logger of the category tierfold, kernels. */
export function defaultLogger(): KernelLogger {
  return getLogger(["tierfold", "kernels"]);
}
