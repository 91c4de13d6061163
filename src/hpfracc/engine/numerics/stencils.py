"""Neighbourhoods of a lattice: their steps, and relaxation over arrays with a ghost layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

__all__ = ["NEIGHBOURHOODS", "bucket_ring", "forward_offsets", "padded_views", "refresh_ghosts", "relax"]

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


def padded_views(padded: Any, offsets: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Views of the neighbours of all points in each direction, for an array with a ghost layer along its last axes."""
    return tuple(
        padded[(..., *(slice(1 + step, 1 + step + size) for step, size in zip(offset, shape, strict=True)))]
        for offset in offsets
    )


def refresh_ghosts(padded: Any, shape: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
    """Copy the opposite faces into the ghosts of periodic axes, axis by axis, which also sets the corners."""
    ndim = len(shape)
    for axis, (size, wraps) in enumerate(zip(shape, periodic, strict=True)):
        if wraps:
            for ghost, source in ((0, size), (size + 1, 1)):
                padded[_at(axis, ndim, ghost)] = padded[_at(axis, ndim, source)]


def _at(axis: int, ndim: int, place: int) -> tuple[Any, ...]:
    return (..., *(place if other == axis else slice(None) for other in range(ndim)))


def relax(
    xp: Any,
    full: Callable[[tuple[int, ...]], Any],
    costs: Any,
    start: Any,
    *,
    neighbourhood: str,
    periodic: tuple[bool, ...],
    edges: bool,
    every: int,
) -> Any:
    """Lower every point to its cheapest neighbour plus the step, until nothing changes.

    Parameters
    ----------
    xp : module
        A library whose ``minimum``, ``add`` and ``where`` take ``out=``: NumPy or PyTorch.
    full : callable
        Creates an array of infinities of a given shape.
    every : int
        Rounds between two checks for changes, because a check waits for the device.
    """
    shape = tuple(costs.shape[1:] if edges else costs.shape)
    ndim = len(shape)
    steps = forward_offsets(ndim, neighbourhood)
    back = tuple(tuple(-step for step in offset) for offset in steps)
    infinite = full(())
    costs = xp.where(costs >= 0, costs, infinite)
    start = xp.where(xp.isfinite(start), start, infinite)
    lead = tuple(start.shape[: start.ndim - ndim])
    padded = full((*lead, *(size + 2 for size in shape)))
    inner = padded[(..., *(slice(1, 1 + size) for size in shape))]
    inner[...] = start
    ahead, behind = padded_views(padded, steps, shape), padded_views(padded, back, shape)
    if edges:
        ghosted = full((len(steps), *(size + 2 for size in shape)))
        ghosted[(..., *(slice(1, 1 + size) for size in shape))] = costs
        refresh_ghosts(ghosted, shape, periodic)
        arriving = [padded_views(ghosted[place], (offset,), shape)[0] for place, offset in enumerate(back)]
    best, trial = full((*lead, *shape)), full((*lead, *shape))
    # A shortest path visits no point twice, so it has fewer steps than there are points.
    rounds = 0
    while rounds < math.prod(shape):
        for turn in range(every):
            refresh_ghosts(padded, shape, periodic)
            if edges:
                xp.add(ahead[0], costs[0], out=best)
                xp.minimum(best, xp.add(behind[0], arriving[0], out=trial), out=best)
                for place in range(1, len(steps)):
                    xp.minimum(best, xp.add(ahead[place], costs[place], out=trial), out=best)
                    xp.minimum(best, xp.add(behind[place], arriving[place], out=trial), out=best)
            else:
                xp.minimum(ahead[0], behind[0], out=best)
                for view in (*ahead[1:], *behind[1:]):
                    xp.minimum(best, view, out=best)
                xp.add(best, costs, out=best)
            # Only the last round of a group is checked for changes.
            lower = best < inner if turn == every - 1 else None
            xp.minimum(inner, best, out=best)
            inner[...] = best
        rounds += every
        if lower is not None and not bool(lower.any()):
            break
    return best
