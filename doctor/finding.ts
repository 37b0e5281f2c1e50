/**
 * What a check found, and how findings are shown.
 *
 * @module
 */

/** How good what was found is; only a problem makes the doctor fail. */
export type State = "ok" | "warning" | "problem" | "skipped";

/** One thing that was looked at. */
export interface Finding {
  /** What was checked, in a word or two. */
  readonly check: string;
  readonly state: State;
  /** What was found, or why nothing was looked at. */
  readonly found: string;
  /** What to do about it; for warnings and problems, and for what was skipped where it could be checked. */
  readonly advice?: string;
}

/** Makes a finding that needs no deed. */
export function ok(check: string, found: string): Finding {
  return { check, state: "ok", found };
}

/** Makes a finding that asks for a deed. */
export function amiss(
  check: string,
  state: "warning" | "problem" | "skipped",
  found: string,
  advice: string,
): Finding {
  return { check, state, found, advice };
}

/** Findings as a page for people. */
export function renderFindings(findings: readonly Finding[]): string {
  const width = Math.max(0, ...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, state, found, advice }) => {
    const start = `${state.padEnd(7)}  ${check.padEnd(width)}  `;
    const follow = advice === undefined ? [] : [`${" ".repeat(start.length)}-> ${advice}`];
    return [start + found, ...follow];
  });
  return `${lines.join("\n")}\n\n${summary(findings)}\n`;
}

/** Findings as one JSON document. */
export function findingsJson(findings: readonly Finding[]): string {
  return `${JSON.stringify({ healthy: healthy(findings), findings }, null, 2)}\n`;
}

/** Whether none of the findings is a problem. */
export function healthy(findings: readonly Finding[]): boolean {
  return findings.every(({ state }) => state !== "problem");
}

function summary(findings: readonly Finding[]): string {
  const count = (wanted: State) => findings.filter(({ state }) => state === wanted).length;
  const parts = (["problem", "warning"] as const).flatMap((state) => {
    const number = count(state);
    return number === 0 ? [] : [`${number} ${state}${number === 1 ? "" : "s"}`];
  });
  return parts.length === 0 ? "nothing is amiss" : parts.join(", ");
}
