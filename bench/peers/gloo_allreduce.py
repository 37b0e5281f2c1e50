"""One rank of torch gloo's all_reduce, driven by lines, for `deno task bench`.

    /usr/bin/python3 gloo_allreduce.py RANK WORLD_SIZE STORE_FILE

Prints `ready`. For every line `go BYTES WARM ROUNDS` it makes WARM rounds, prints `warm`, waits for the
line `measure`, and prints `result {"ms": [...], "cpu_s": ..., "rss_mb": ...}`. Ends at the line `quit` or
at the end of input. GLOO_SOCKET_IFNAME chooses the interface.

Only the all_reduce is timed: the fresh values of every round, and a barrier, come before it.
"""

import datetime
import json
import sys
import time

import torch
import torch.distributed as dist


def cpu_seconds():
    return time.process_time()  # user and system, all threads


def peak_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def reset_peak():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")


def rounds(count, fresh, work):
    times = []
    for _ in range(count):
        work.copy_(fresh)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(work, op=dist.ReduceOp.SUM)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def main():
    rank, world_size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method="file://" + store,
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=120),
    )
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words[:1] == ["quit"]:
            break
        if words[:1] != ["go"]:
            continue
        size, warm, count = (int(word) for word in words[1:4])
        reset_peak()
        fresh = torch.rand(size // 4, dtype=torch.float32)
        work = torch.empty_like(fresh)
        rounds(warm, fresh, work)
        print("warm", flush=True)
        sys.stdin.readline()
        rounds(1, fresh, work)  # takes up the skew of the start
        before = cpu_seconds()
        times = rounds(count, fresh, work)
        used = (cpu_seconds() - before) / count
        result = {"ms": times, "cpu_s": used, "rss_mb": peak_mb()}
        print("result " + json.dumps(result), flush=True)
        del fresh, work
    dist.barrier()
    dist.destroy_process_group()


main()
