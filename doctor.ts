/**
 * The doctor: `deno task doctor` looks at this host and at who it is to talk to, and says what to do.
 *
 * @module
 */
import { readEnvironment } from "./cli/environment.ts";
import { answerWith, ExitCode, readOptions } from "./cli/program.ts";
import { examine } from "./doctor/examine.ts";
import { findingsJson, healthy, renderFindings } from "./doctor/finding.ts";
import { doctorProgram } from "./doctor/options.ts";

if (import.meta.main) {
  const { options } = readOptions(doctorProgram, Deno.args, readEnvironment);
  const findings = await examine(options);
  answerWith(
    healthy(findings) ? ExitCode.ok : ExitCode.failed,
    options.json ? findingsJson(findings) : renderFindings(findings),
  );
}
