"""Where a rank finds its place: in what it is told, in Tierfold's own variables, or in its launcher's.

    who        rank                   world size             local rank
    torchrun   RANK                   WORLD_SIZE             LOCAL_RANK
    openmpi    OMPI_COMM_WORLD_RANK   OMPI_COMM_WORLD_SIZE   OMPI_COMM_WORLD_LOCAL_RANK
    slurm      SLURM_PROCID           SLURM_NTASKS > 1       SLURM_LOCALID

The TypeScript client follows the same rules (rank/launch.ts).
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

from ._limits import MAX_WORLD_SIZE
from .errors import LaunchError

log = logging.getLogger("tierfold")

LAUNCHERS: Mapping[str, tuple[str, str, str]] = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}

_FIELDS = ("rank", "world size", "local rank")


@dataclass(frozen=True)
class LaunchPlace:
    """A rank's place in its session."""

    rank: int
    world_size: int
    # This rank's number among those of its host, where somebody says so: which GPU to take.
    local_rank: Optional[int]
    # The relay of this host, from TIERFOLD_RELAY.
    relay: Optional[str]
    # MASTER_ADDR, with MASTER_PORT behind it where that is set.
    master: Optional[str]
    # Who said so, for logs.
    source: str


@dataclass(frozen=True)
class _Said:
    value: int
    by: str


_Saying = dict[str, _Said]


def launch_place(
    rank: Optional[int] = None,
    world_size: Optional[int] = None,
    env: Optional[Mapping[str, str]] = None,
) -> LaunchPlace:
    """Finds this process's place.

    Rank and world size that are given count first, then TIERFOLD_RANK and TIERFOLD_WORLD_SIZE, then what
    torchrun, mpirun or srun says. Rank and world size that are both known already are taken as they are,
    whatever a launcher says. Where only one of them is, it must agree with the launcher, and where two
    launchers speak, they must agree with each other; TIERFOLD_LAUNCHER (torchrun, openmpi, slurm or none)
    decides between them.

    Raises LaunchError when nobody says where this rank stands, or two say different things; it names both.
    """
    env = os.environ if env is None else env
    own: _Saying = {}
    for field, given, variable in (
        ("rank", rank, "TIERFOLD_RANK"),
        ("world size", world_size, "TIERFOLD_WORLD_SIZE"),
        ("local rank", None, "TIERFOLD_LOCAL_RANK"),
    ):
        said = _Said(given, "its options") if given is not None else _number_in(env, variable)
        if said is not None:
            own[field] = said
    # What is said in full needs no launcher, whose variables may be left over from something else.
    saying = own
    if "rank" not in own or "world size" not in own:
        remedy = "give both the rank and the world size, or neither"
        saying = _merge(own, _ask_launchers(env), remedy)
    if "rank" not in saying or "world size" not in saying:
        raise LaunchError(_missing(saying))
    _expect_place(saying["rank"], saying["world size"])
    source = ", ".join(
        f"{field} {saying[field].value} by {saying[field].by}" for field in ("rank", "world size")
    )
    log.info("the place of this rank: %s", source)
    local = saying.get("local rank")
    return LaunchPlace(
        rank=saying["rank"].value,
        world_size=saying["world size"].value,
        local_rank=None if local is None else local.value,
        relay=env.get("TIERFOLD_RELAY", "").strip() or None,
        master=_master(env),
        source=source,
    )


def _ask_launchers(env: Mapping[str, str]) -> _Saying:
    chosen = env.get("TIERFOLD_LAUNCHER", "")
    if chosen == "none":
        return {}
    known = ", ".join(LAUNCHERS)
    if chosen != "":
        if chosen not in LAUNCHERS:
            raise LaunchError(
                f"TIERFOLD_LAUNCHER: expected one of {known}, none, got {json.dumps(chosen[:80])}"
            )
        saying = _ask(chosen, env)
        if saying:
            return saying
        more = " with more than one task" if chosen == "slurm" else ""
        first, second, _ = LAUNCHERS[chosen]
        raise LaunchError(
            f"TIERFOLD_LAUNCHER is {chosen}, which says nothing here{more}: expected {first} and {second}"
        )
    remedy = (
        f"set TIERFOLD_LAUNCHER to {known} or none to say who counts, or unset what is left over from "
        "elsewhere"
    )
    merged: _Saying = {}
    for launcher in LAUNCHERS:
        merged = _merge(merged, _ask(launcher, env), remedy)
    return merged


def _ask(launcher: str, env: Mapping[str, str]) -> _Saying:
    # A lone task's variables are those of any shell in an allocation.
    if launcher == "slurm" and env.get("SLURM_NTASKS", "").strip() in ("", "1"):
        return {}
    saying: _Saying = {}
    for field, variable in zip(_FIELDS, LAUNCHERS[launcher]):
        said = _number_in(env, variable, f" ({launcher})")
        if said is not None:
            saying[field] = said
    return saying


def _merge(a: _Saying, b: _Saying, remedy: str) -> _Saying:
    for field in _FIELDS:
        first, second = a.get(field), b.get(field)
        if first is None or second is None or first.value == second.value:
            continue
        raise LaunchError(
            f"the {field} is {first.value} by {first.by} but {second.value} by {second.by}; {remedy}"
        )
    return {**b, **a}


def _number_in(env: Mapping[str, str], variable: str, whose: str = "") -> Optional[_Said]:
    text = env.get(variable, "").strip()
    if text == "":
        return None
    if re.fullmatch(r"[0-9]{1,9}", text) is None:
        raise LaunchError(
            f"{variable}{whose}: expected a whole number, got {json.dumps(text[:80])}"
        )
    return _Said(int(text), f"{variable}{whose}")


def _expect_place(rank: _Said, world_size: _Said) -> None:
    if not 1 <= world_size.value <= MAX_WORLD_SIZE:
        raise LaunchError(
            f"the world size is {world_size.value} by {world_size.by}, expected 1 to {MAX_WORLD_SIZE}"
        )
    if not 0 <= rank.value < world_size.value:
        raise LaunchError(
            f"the rank is {rank.value} by {rank.by}, not below the world size of {world_size.value} by "
            f"{world_size.by}"
        )


def _missing(saying: _Saying) -> str:
    found = "neither rank nor world size"
    for field, other in (("rank", "world size"), ("world size", "rank")):
        if field in saying:
            found = f"a {field} ({saying[field].value} by {saying[field].by}) but no {other}"
    return (
        f"looking for this rank's place: {found}; give them as arguments, set TIERFOLD_RANK and "
        "TIERFOLD_WORLD_SIZE, or start it with torchrun, mpirun or srun"
    )


def _master(env: Mapping[str, str]) -> Optional[str]:
    host = env.get("MASTER_ADDR", "").strip()
    port = env.get("MASTER_PORT", "").strip()
    if host == "":
        return None
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{port}" if port else host
