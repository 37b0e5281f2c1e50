"""A rank as a process of its own, told what to do by JSON lines on its standard input.

    TIERFOLD_SALT=... python3 rank_main.py [RELAY RANK WORLD_SIZE]

It answers each line with `done JSON`, or with `failed REASON` and exit code 1. Without arguments it finds
its place in the environment.
"""

import json
import sys

import numpy as np
import tierfold


def say(word, what):
    print(word, what.replace("\n", " "), flush=True)


def tensors_of(command):
    """Arrays, or tensors of torch, from the hex digits of their f32 values."""
    arrays = {
        name: np.frombuffer(bytes.fromhex(digits), "<f4").copy()
        for name, digits in command["tensors"].items()
    }
    if not command.get("torch"):
        return arrays
    import torch

    return {name: torch.from_numpy(array).clone() for name, array in arrays.items()}


def obey(client, command):
    act = command["act"]
    if act == "counts":
        return [float(count) for count in client.gather_counts(command["count"])]
    if act == "place":
        return [client.rank, client.world_size]
    if act == "state":
        return state(client, command)
    if act == "start":
        return start(client, command)
    tensors = tensors_of(command)
    if act == "broadcast":
        result = client.broadcast(tensors, command["root"])
    else:
        result = client.all_reduce(tensors, mass=command["mass"], kind=command.get("kind", "model"))
    return {
        "mass": result.mass,
        "tensors": {name: np.asarray(value).tobytes().hex() for name, value in tensors.items()},
    }


def start(client, command):
    """Takes the state of rank 1."""
    import torch

    own = {
        "weight": torch.tensor(command["value"]),
        "tracked": torch.tensor(command["tracked"]),
        "table": np.array([client.rank, 1], np.uint16),
        "flag": torch.tensor(client.rank == 1),
        "name": "a",
    }
    tierfold.broadcast_state_dict(client, own, 1)
    return {
        "weight": own["weight"].item(),
        "tracked": own["tracked"].item(),
        "table": own["table"].tolist(),
        "flag": own["flag"].item(),
    }


def state(client, command):
    """Averages the state of a module with BatchNorm, which has seen `steps` batches of `value`."""
    import torch

    torch.manual_seed(7)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    module.register_buffer("table", torch.tensor([client.rank, 1]))
    with torch.no_grad():
        module[0].weight.fill_(command["value"])
        module[1].running_mean.fill_(command["value"])
        module[1].num_batches_tracked.fill_(command["tracked"])
    result = tierfold.average_module(client, module, steps=command["steps"])
    after = module.state_dict()
    return {
        "mass": result.mass,
        "mover_mass": result.mover_mass,
        "steps": result.steps.tolist(),
        "weight": after["0.weight"].flatten().tolist(),
        "mean": after["1.running_mean"].tolist(),
        "tracked": after["1.num_batches_tracked"].item(),
        "table": after["table"].tolist(),
    }


def main():
    given = sys.argv[1:]
    place = [given[0], int(given[1]), int(given[2])] if given else []
    with tierfold.connect(*place, seal=given[3:] == ["seal"]) as client:
        say("done", json.dumps("connected"))
        for line in sys.stdin:
            command = json.loads(line)
            if command["act"] == "close":
                break
            say("done", json.dumps(obey(client, command)))


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        say("failed", f"{type(error).__name__}: {error}")
        sys.exit(1)
