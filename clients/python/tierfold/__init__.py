"""A rank client for Tierfold: averages numpy arrays and torch tensors across machines, in place.

import tierfold

with tierfold.connect(relay="127.0.0.1:7071", rank=0, world_size=4) as client:
    client.all_reduce({"weights": weights}, mass=steps)
"""

from __future__ import annotations

from .client import RankClient, RoundResult, connect
from .errors import LaunchError, TierfoldError, TransportError, WireError
from .launch import LaunchPlace, launch_place
from .mass import gamma_mass, mover_mass
from .state import StateResult, average_module, average_state_dict, broadcast_state_dict

__all__ = [
    "LaunchError",
    "LaunchPlace",
    "RankClient",
    "RoundResult",
    "StateResult",
    "TierfoldError",
    "TransportError",
    "WireError",
    "average_module",
    "average_state_dict",
    "broadcast_state_dict",
    "connect",
    "gamma_mass",
    "launch_place",
    "mover_mass",
]

__version__ = "0.1.0"
