/**
 * Where the benches leave what they found out, and how they end on a signal.
 *
 * @module
 */

import type { Plot } from "./bench_plots.ts";
import { killAllChildren } from "./child.ts";

/** The folder from which the report is made. */
export const DOCS_FOLDER = "docs/performance";

/** Options that every bench has. */
export interface OutputOptions {
  /** A file for the figures. */
  json?: string;
  /** A folder for plots and figures. */
  out: string;
  /** Write to {@link DOCS_FOLDER} instead. */
  docs?: true;
}

/**
 * Writes `NAME.json` and the plots to the folder that the options name, and the figures to the file
 * that they name.
 *
 * @param raw What `--json` gets when that is less than `figures`.
 */
export async function writeFigures(
  name: string,
  figures: unknown,
  plots: readonly Plot[],
  options: OutputOptions,
  raw: unknown = figures,
): Promise<void> {
  const folder = options.docs ? DOCS_FOLDER : options.out;
  await Deno.mkdir(folder, { recursive: true });
  await Deno.writeTextFile(`${folder}/${name}.json`, JSON.stringify(figures, null, 1) + "\n");
  for (const { file, svg } of plots) {
    await Deno.writeTextFile(`${folder}/${file}`, svg);
    console.log(`plot: ${folder}/${file}`);
  }
  if (options.json === undefined) return;
  await Deno.writeTextFile(options.json, JSON.stringify(raw, null, 2) + "\n");
  console.log(`figures: ${options.json}`);
}

/** On SIGINT, SIGTERM and SIGHUP: kills every child, cleans up, and ends with 128 + the signal. */
export function endOnSignal(cleanUp: () => void = () => {}): void {
  for (const [signal, code] of [["SIGHUP", 129], ["SIGINT", 130], ["SIGTERM", 143]] as const) {
    Deno.addSignalListener(signal, () => {
      killAllChildren();
      cleanUp();
      Deno.exit(code);
    });
  }
}
