"""Exponential recurrence in NumPy: the generic kernel, with segments that stay in a cache."""

from __future__ import annotations

from hpfracc._xp import NUMPY
from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.generic.exponential_recurrence import make_kernels
from hpfracc.engine.backends.numpy.nonfinite import all_finite

__all__ = ["KERNELS"]

#: States that are processed together: with their factors they stay in a second-level cache.
_STATES_TOGETHER = 1 << 14


def _segments(n: int, states: int) -> int:
    return _STATES_TOGETHER // states


KERNELS: dict[str, Kernel] = make_kernels(NUMPY, _segments, all_finite)
