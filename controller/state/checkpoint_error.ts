/**
 * Why a checkpoint cannot be used.
 *
 * @module
 */

/** Why a checkpoint cannot be used, in a word. */
export type CheckpointErrorCode =
  /** It is cut short, bytes of it have changed, or it is none of ours. */
  | "Damaged"
  /** It is whole, but of another version. */
  | "Foreign"
  /** It is not there, or this process may not read it. */
  | "Unreadable";

/** A checkpoint that cannot be used. */
export class CheckpointError extends Error {
  /** "CheckpointError". */
  override readonly name = "CheckpointError";
  /** The cause. */
  readonly code: CheckpointErrorCode;

  /** Builds the error from its cause, the file, and what is wrong with it. */
  constructor(code: CheckpointErrorCode, path: string, what: string, options?: ErrorOptions) {
    super(`reading the checkpoint ${path}: ${what}`, options);
    this.code = code;
  }
}
