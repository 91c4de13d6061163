"""Times in words."""

from __future__ import annotations

import math

__all__ = ["show_seconds"]


def show_seconds(seconds: float) -> str:
    """A time in the unit that suits it: ``1.4 us``, ``23 ms``; ``unknown`` for nan."""
    if math.isnan(seconds):
        return "unknown"
    for scale, unit in ((1e-6, "us"), (1e-3, "ms")):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"
