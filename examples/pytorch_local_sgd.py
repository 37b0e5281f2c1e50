"""Local SGD with PyTorch: each rank trains on its own digits and averages with the others every few steps.

    TIERFOLD_SALT=... TIERFOLD_RELAY=HOST:PORT torchrun --nproc-per-node 4 examples/pytorch_local_sgd.py

The relay and the controller run already (docs/python.md). Rank and world size come from torchrun, mpirun,
srun or TIERFOLD_RANK and TIERFOLD_WORLD_SIZE. It is the network of examples/digits/rank.ts, trained the same
way, so that ranks in TypeScript and ranks in PyTorch may share a session: `deno task demo --torch 2`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"{sys.executable} cannot run this example: {error}; choose a Python that has PyTorch")

try:
    import tierfold
except ImportError:
    # Straight from a clone, without pip install ./clients/python.
    sys.path.insert(0, str(REPOSITORY / "clients" / "python"))
    import tierfold

PIXELS, HIDDEN, CLASSES = 784, 32, 10
BATCH = 16
LEARNING_RATE = 0.3
# Steps that the rank with the most digits makes between two averagings.
STEPS = 10


def load_digits(deno: str, rank: int, world_size: int, seed: int) -> list[torch.Tensor]:
    """This rank's pixels and labels, and those of the digits that nobody trains on."""
    script = str(REPOSITORY / "examples" / "digits" / "export.ts")
    command = [deno, "run", "--quiet", "--no-prompt", script, str(rank), str(world_size), str(seed)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    line, _, rest = output.partition(b"\n")
    counts = json.loads(line)
    tensors = []
    for count in (counts["shard"], counts["heldOut"]):
        end = 4 * PIXELS * count
        pixels = np.frombuffer(rest[:end], "<f4").astype(np.float32).reshape(count, PIXELS)
        labels = np.frombuffer(rest[end : end + count], np.uint8).astype(np.int64)
        tensors += [torch.from_numpy(pixels), torch.from_numpy(labels)]
        rest = rest[end + count :]
    return tensors


def weights_of(model: nn.Sequential) -> dict[str, torch.Tensor]:
    """The weights as all ranks of a session lay them out: TensorFlow.js keeps kernels input by output."""
    hidden, _, digit = model
    return {
        "hidden/kernel": hidden.weight.t(),
        "hidden/bias": hidden.bias,
        "digit/kernel": digit.weight.t(),
        "digit/bias": digit.bias,
    }


def fingerprint(weights: dict[str, torch.Tensor]) -> str:
    """SHA-256 of all weights' bytes: equal for equal bits only."""
    digest = hashlib.sha256()
    for weight in weights.values():
        digest.update(weight.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def batches(count: int, generator: torch.Generator):
    """Indices of one batch after another: shuffled passes without end."""
    size = min(BATCH, count)
    while True:
        order = torch.randperm(count, generator=generator)
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]


def report(kind: str, **fields: object) -> None:
    """One JSON object a line, as examples/digits/report.ts describes it."""
    print(json.dumps({"kind": kind, **fields}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Local SGD on real digits with PyTorch and Tierfold.")
    parser.add_argument("--rounds", type=int, default=80, help="how often to average")
    parser.add_argument("--seed", type=int, default=1, help="decides shards, weights and order")
    parser.add_argument("--deno", default="deno", help="the deno that fetches the digits")
    options = parser.parse_args()

    with tierfold.connect(round_timeout=60) as client:
        rank = client.rank
        pixels, labels, test_pixels, test_labels = load_digits(
            options.deno, rank, client.world_size, options.seed
        )
        # Every rank starts with other weights; the broadcast is what makes them equal.
        torch.set_num_threads(1)
        torch.manual_seed(options.seed + rank)
        model = nn.Sequential(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        weights = weights_of(model)
        client.broadcast(weights, root=0)

        # Steps in proportion to its digits, so that every rank passes over its shard equally often.
        counts = client.gather_counts(len(labels))
        steps = max(1, math.floor(STEPS * len(labels) / float(counts.max()) + 0.5))
        histogram = torch.bincount(labels, minlength=CLASSES).tolist()
        report("start", rank=rank, digits=len(labels), labels=histogram, steps=steps)

        order = batches(len(labels), torch.Generator().manual_seed(options.seed * 1000 + rank))
        for number in range(1, options.rounds + 1):
            started = time.perf_counter()
            total = 0.0
            for _ in range(steps):
                batch = next(order)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
                loss.backward()
                optimizer.step()
                total += loss.item()
            result = client.all_reduce(weights, mass=tierfold.gamma_mass(steps))
            report(
                "round",
                rank=rank,
                round=number,
                steps=steps,
                loss=total / steps,
                roundMs=1000 * (time.perf_counter() - started),
                averageMs=1000 * result.seconds,
                bytesUp=result.bytes_up,
            )

    accuracy = {}
    if rank == 0:
        with torch.no_grad():
            right = model(test_pixels).argmax(dim=1) == test_labels
        accuracy = {"accuracy": right.float().mean().item()}
    report("end", rank=rank, sha256=fingerprint(weights), **accuracy)


if __name__ == "__main__":
    main()
