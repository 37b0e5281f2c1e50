/**
 * Lines of a byte stream, typed: the module behind `@std/streams` ships no types.
 *
 * @module
 */

import { TextLineStream } from "@std/streams";

/** A reader of the stream's lines of UTF-8 text. */
export function linesOf(
  bytes: ReadableStream<Uint8Array<ArrayBuffer>>,
): ReadableStreamDefaultReader<string> {
  const lines: TransformStream<string, string> = new TextLineStream();
  return bytes.pipeThrough(new TextDecoderStream()).pipeThrough(lines).getReader();
}
