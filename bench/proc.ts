/**
 * CPU time and memory of processes, from Linux's /proc.
 *
 * @module
 */

/** Clock ticks per second in /proc/PID/stat; 100 on every Linux that Deno runs on. */
const TICKS_PER_SECOND = 100;

/** CPU seconds of a process or thread since it started. */
export interface CpuSeconds {
  /** In user code. */
  user: number;
  /** In the kernel on its behalf. */
  system: number;
}

/** Memory of a process in MB (10^6 bytes). */
export interface Memory {
  /** Resident now. */
  rss_mb: number;
  /** The most that was ever resident. */
  peak_mb: number;
}

/** The CPU seconds in one `stat` line. The name in brackets may hold blanks, so it is cut off first. */
function parseStat(stat: string): CpuSeconds {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // Fields 14 and 15 of proc(5), utime and stime; the cut removed the first two.
  return {
    user: Number(fields[11]) / TICKS_PER_SECOND,
    system: Number(fields[12]) / TICKS_PER_SECOND,
  };
}

/**
 * CPU seconds of a process, all its threads together, in steps of 10 ms.
 *
 * @throws {Deno.errors.NotFound} When there is no such process.
 */
export function cpuSeconds(pid: number): CpuSeconds {
  return parseStat(Deno.readTextFileSync(`/proc/${pid}/stat`));
}

/** User and system seconds of a process together. Throws as {@link cpuSeconds} does. */
export function totalCpuSeconds(pid: number): number {
  const { user, system } = cpuSeconds(pid);
  return user + system;
}

/** CPU seconds of every thread of a process, by thread id, with the thread's name. */
export function threadCpuSeconds(pid: number): Map<number, CpuSeconds & { name: string }> {
  const threads = new Map<number, CpuSeconds & { name: string }>();
  for (const entry of Deno.readDirSync(`/proc/${pid}/task`)) {
    const folder = `/proc/${pid}/task/${entry.name}`;
    try {
      threads.set(Number(entry.name), {
        ...parseStat(Deno.readTextFileSync(`${folder}/stat`)),
        name: Deno.readTextFileSync(`${folder}/comm`).trim(),
      });
    } catch (error) {
      // A thread may end between the listing and the reading.
      if (!(error instanceof Deno.errors.NotFound)) throw error;
    }
  }
  return threads;
}

/**
 * Resident memory of a process, from VmRSS and VmHWM of its status.
 *
 * @throws {Deno.errors.NotFound} When there is no such process.
 */
export function memory(pid: number): Memory {
  const status = Deno.readTextFileSync(`/proc/${pid}/status`);
  const megabytes = (key: string): number => {
    const match = new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(status);
    return Number(match?.[1] ?? 0) * 1024 / 1e6;
  };
  return { rss_mb: megabytes("VmRSS"), peak_mb: megabytes("VmHWM") };
}

/** Bytes of memory that new processes can have, from MemAvailable. */
export function availableBytes(): number {
  const match = /^MemAvailable:\s+(\d+) kB/m.exec(Deno.readTextFileSync("/proc/meminfo"));
  return Number(match?.[1] ?? 0) * 1024;
}
