"""Neighbourhoods of a lattice: their steps, and the buckets of a search in order of distance."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

NEIGHBOURHOODS = ("von_neumann", "moore")

#: Width of a bucket as a fraction of the mean cost: narrow enough that few steps are shorter, wide enough that few
#: buckets are empty (benchmarks/lattice.py, mazes of 2048 x 2048); and the maximum number of buckets.
_SHARE = 1 / 8
_MAX_BUCKETS = 1 << 16


def bucket_ring(mean: float, greatest: float) -> tuple[float, int]:
    """Width of a bucket for a search in order of distance, and the number of buckets, a power of two.

    No step is longer than the ring minus two buckets.
    """
    # Above the smallest numbers, whose reciprocal is infinite.
    width = max(mean * _SHARE, greatest / (_MAX_BUCKETS - 4), 1e-300)
    return width, 1 << math.ceil(math.log2(max(4.0, greatest / width + 4)))


@lru_cache(maxsize=64)
def forward_offsets(ndim: int, neighbourhood: str) -> tuple[tuple[int, ...], ...]:
    """One step of each pair of opposite ones: along each axis, or for Moore all after 0 in lexicographic order."""
    if neighbourhood == "von_neumann":
        return tuple(tuple(int(axis == other) for other in range(ndim)) for axis in range(ndim))
    zero = (0,) * ndim
    return tuple(step for step in itertools.product((-1, 0, 1), repeat=ndim) if step > zero)
