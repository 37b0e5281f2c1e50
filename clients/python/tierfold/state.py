"""Whole models: parameters by mass, moved buffers by mover mass, counters by maximum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np
from numpy.typing import NDArray

from ._tensors import F32, Values, is_torch, torch_module
from .client import RankClient
from .errors import WireError
from .mass import gamma_mass, mover_mass

# How an integer tensor of several ranks becomes one: the largest, the sum, or everybody's own.
Policy = Callable[[str], str]
POLICIES = ("max", "sum", "keep")

# What buffers are called by the modules that move them while training (BatchNorm and its kin).
_BUFFER_NAMES = ("running_mean", "running_var")

# An integer of 64 bits travels as three f32 of at most 22 bits each, which are exact.
_LIMB_BITS = 22
_LIMBS = 3
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class StateResult:
    """What averaging a model came to."""

    # Total mass of the parameters; 0 means that they are unchanged.
    mass: float
    # Total mass of the buffers: how many ranks moved theirs.
    mover_mass: float
    # Steps of each rank; 0 for ranks that are gone.
    steps: Values


def average_state_dict(
    client: RankClient,
    state: Mapping[str, Any],
    *,
    steps: int,
    gamma: float = 1.0,
    buffers: Optional[Collection[str]] = None,
    integers: Optional[Policy] = None,
) -> StateResult:
    """Averages a model's state over all ranks, in place: a Control round and up to two Model rounds.

    state     names to numpy arrays or torch tensors, the same on every rank. Entries that are neither stay.
    steps     optimizer steps of this rank since the last time; parameters weigh steps ** gamma
    buffers   names of the float tensors that training moves without training them, which weigh 1 on a
              rank that made a step, else 0; when left out, those called running_mean and running_var
    integers  for an integer tensor's name "max", "sum" or "keep"; when left out, counters (one value, such
              as num_batches_tracked) become the largest, other integer tensors stay

    Complex numbers are refused. Raises as RankClient.all_reduce() does.
    """
    if steps < 0:
        raise ValueError(f"averaging a state: {steps} steps, expected 0 or more")
    moved = _moved_names(state) if buffers is None else frozenset(buffers)
    floats = {name: value for name, value in state.items() if _kind(name, value) == "float"}
    counters = _counters(state, integers)
    counts = _share_counters(client, counters, steps)
    parameters = {name: value for name, value in floats.items() if name not in moved}
    others = {name: value for name, value in floats.items() if name in moved}
    mass = movers = 0.0
    if parameters:
        mass = client.all_reduce(parameters, mass=gamma_mass(steps, gamma)).mass
    if others:
        movers = client.all_reduce(others, mass=mover_mass(steps)).mass
    return StateResult(mass=mass, mover_mass=movers, steps=counts)


def average_module(
    client: RankClient,
    module: Any,
    *,
    steps: int,
    gamma: float = 1.0,
    integers: Optional[Policy] = None,
) -> StateResult:
    """Averages a torch.nn.Module over all ranks, in place; see average_state_dict().

    Its parameters weigh steps ** gamma, its buffers (those that a state_dict holds) by mover mass.
    """
    kept = module.state_dict().keys()
    state = dict(module.named_parameters())
    buffers = {name: value for name, value in module.named_buffers() if name in kept}
    state.update(buffers)
    return average_state_dict(
        client, state, steps=steps, gamma=gamma, buffers=buffers.keys(), integers=integers
    )


def broadcast_state_dict(client: RankClient, state: Mapping[str, Any], root: int) -> None:
    """Copies a model's state from one rank to all others: floats as they are in f32, integers exactly.

    All ranks start from the same weights that way: ``broadcast_state_dict(client, module.state_dict(), 0)``.
    """
    floats = {name: value for name, value in state.items() if _kind(name, value) == "float"}
    whole = {name: value for name, value in state.items() if _kind(name, value) == "integer"}
    limbs = {name: _to_limbs(_integers(value)) for name, value in whole.items()}
    client.broadcast({**floats, **limbs}, root)
    for name, value in whole.items():
        _store_integers(value, _from_limbs(limbs[name], _integers(value).dtype))


def _moved_names(state: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name in state if name.rpartition(".")[2] in _BUFFER_NAMES)


def _kind(name: str, value: object) -> str:
    """ "float", "integer", or "other" for what stays as it is."""
    if is_torch(value):
        dtype = value.dtype  # type: ignore[attr-defined]
        torch = torch_module()
        if dtype.is_complex:
            raise TypeError(f"averaging {name}: complex numbers ({dtype}) are not averaged")
        if dtype.is_floating_point:
            return "float"
        return "other" if dtype == torch.bool or value.is_quantized else "integer"  # type: ignore[attr-defined]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "c":
            raise TypeError(f"averaging {name}: complex numbers ({value.dtype}) are not averaged")
        return {"f": "float", "i": "integer", "u": "integer"}.get(value.dtype.kind, "other")
    return "other"


def _counters(state: Mapping[str, Any], integers: Optional[Policy]) -> list[tuple[str, Any, str]]:
    """Name, tensor and policy of the integer tensors that do not just stay."""
    found = []
    for name, value in state.items():
        if _kind(name, value) != "integer":
            continue
        one = _integers(value).size == 1
        policy = integers(name) if integers is not None else ("max" if one else "keep")
        if policy not in POLICIES:
            raise ValueError(f"averaging {name}: policy {policy!r}, expected {', '.join(POLICIES)}")
        if policy != "keep":
            found.append((name, value, policy))
    return found


def _share_counters(
    client: RankClient, counters: Sequence[tuple[str, Any, str]], steps: int
) -> Values:
    """One Control round in which every rank fills its own row: that it is there, its steps, its counters."""
    own = [_to_limbs(_integers(value)).reshape(-1) for _, value, _ in counters]
    row = np.concatenate([np.array([1, steps], dtype=F32), *own])
    table = np.zeros((client.world_size, row.size), dtype=F32)
    table[client.rank] = row
    client.all_reduce({"steps and counters": table}, mass=0, kind="control")
    here = table[table[:, 0] > 0]
    if here.size == 0:
        raise WireError(
            "schema",
            f"sharing counters at rank {client.rank}: the result holds no rank's row, not even its own",
        )
    at = 2
    for _, value, policy in counters:
        shape = _integers(value).shape
        dtype = _integers(value).dtype
        width = _LIMBS * _integers(value).size
        limbs = here[:, at : at + width].reshape(len(here), _LIMBS, *shape)
        at += width
        each = [_from_limbs(rank_limbs, dtype) for rank_limbs in limbs]
        combine = np.maximum if policy == "max" else np.add
        _store_integers(value, combine.reduce(np.stack(each), axis=0).astype(dtype))
    return table[:, 1].copy()


def _integers(value: Any) -> NDArray[Any]:
    """An integer tensor's values."""
    return value.detach().cpu().numpy() if is_torch(value) else np.asarray(value)


def _store_integers(value: Any, values: NDArray[Any]) -> None:
    if is_torch(value):
        torch = torch_module()
        with torch.no_grad():
            value.copy_(torch.from_numpy(np.ascontiguousarray(values)).reshape(value.shape))
    else:
        value[...] = values


def _to_limbs(values: NDArray[Any]) -> NDArray[np.float32]:
    """Integers as f32 of 22 bits, lowest first; with an offset where they have a sign."""
    if values.dtype.kind == "u":
        bits = values.astype(np.uint64)
    else:
        bits = values.astype(np.int64).view(np.uint64) ^ _SIGN
    mask = np.uint64((1 << _LIMB_BITS) - 1)
    parts = [(bits >> np.uint64(_LIMB_BITS * i)) & mask for i in range(_LIMBS)]
    return np.stack(parts).astype(F32)


def _from_limbs(limbs: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    bits = np.zeros(limbs.shape[1:], dtype=np.uint64)
    for i in range(_LIMBS):
        bits |= limbs[i].astype(np.uint64) << np.uint64(_LIMB_BITS * i)
    if dtype.kind == "u":
        return bits.astype(dtype)
    return (bits ^ _SIGN).view(np.int64).astype(dtype)
