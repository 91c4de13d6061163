"""Exponential recurrence in CuPy: the generic kernel, with segments that fill a GPU."""

from __future__ import annotations

import math

from hpfracc._xp import namespace
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.exponential_recurrence import make_kernels

__all__ = ["KERNELS"]

#: States that are processed together: enough to fill a GPU, few enough for small passes.
_STATES_TOGETHER = 1 << 19


def _segments(n: int, states: int) -> int:
    """At most the square root of the steps, because the states are propagated between segments."""
    return min(_STATES_TOGETHER // states, math.isqrt(n))


KERNELS: dict[str, Kernel] = make_kernels(namespace("cupy"), _segments)
