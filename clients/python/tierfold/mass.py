"""What a rank's work weighs (realized work; flodl 0.6.0)."""

from __future__ import annotations

import math


def gamma_mass(steps: float, gamma: float = 1.0) -> float:
    """The mass of ``steps`` optimizer steps since the last sync: steps ** gamma, and 0 without a step.

    gamma 1 weighs ranks by their work, gamma 0 makes every rank that worked equal.
    """
    if not (math.isfinite(steps) and math.isfinite(gamma)):
        raise ValueError(f"the mass of {steps} steps with gamma {gamma}: both must be finite")
    if steps <= 0:
        return 0.0
    return float(steps) if gamma == 1 else float(steps) ** gamma


def mover_mass(steps: float) -> float:
    """The mass of buffers that training moves, such as BatchNorm statistics: 1 after a step, else 0."""
    return 1.0 if steps > 0 else 0.0
