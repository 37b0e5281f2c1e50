/**
 * Names the machine that a bench runs on.
 *
 * @module
 */

import type { Machine } from "./figures.ts";

/** The machine as /proc and Deno describe it. */
export function describeMachine(): Machine {
  const info = Deno.readTextFileSync("/proc/cpuinfo");
  const field = (key: string): string =>
    new RegExp(`^${key}\\s*:\\s*(.*)$`, "m").exec(info)?.[1] ?? "unknown";
  const memory = Deno.readTextFileSync("/proc/meminfo");
  const total = Number(/^MemTotal:\s+(\d+) kB/m.exec(memory)?.[1] ?? 0);
  const release = Deno.osRelease();
  return {
    cpu: `${field("model name")} (family ${field("cpu family")}, model ${field("model")})`,
    cores: navigator.hardwareConcurrency,
    memory_gib: Math.round(total / 1024 ** 2),
    kernel: `${Deno.build.os} ${release} ${Deno.build.arch}`,
    deno: Deno.version.deno,
  };
}

/** One line for tables and captions. */
export function machineLine(machine: Machine): string {
  const { cpu, cores, memory_gib, kernel, deno } = machine;
  return `${cpu}, ${cores} cores, ${memory_gib} GiB, ${kernel}, Deno ${deno}`;
}
