"""Steps on a lattice, compiled: the neighbours of a point, with one division per axis for all of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64, uintp

from hpfracc.lattice.geometry import Array, Geometry

__all__ = ["NOWHERE", "OPTIONS", "ROOT", "borders", "make_steps", "trace_back", "wrap_index"]

OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
#: Index that stands for a point outside the lattice.
NOWHERE = 2**64 - 1
#: Marks the first point of a search, which no step reached.
ROOT = 2**32 - 1

Steps = tuple[Array, Array, Array, Array, Array, np.uint64]


def make_steps(geometry: Geometry) -> Steps:
    """A lattice as the arrays that the compiled searches use.

    Sides and strides; for each step (the forward ones, then their opposites) the change of the index, and the axes
    along which it decreases and increases a coordinate; and the periodic axes. Sets of axes are bit masks.
    """
    ahead = np.asarray(geometry.forward, np.int64)
    offsets = np.concatenate((ahead, -ahead))
    bits = np.uint64(1) << np.arange(len(geometry.shape), dtype=np.uint64)
    strides = np.asarray(geometry.strides, np.int64)
    return (
        np.asarray(geometry.shape, np.int64).view(np.uint64),
        strides.view(np.uint64),
        # Unsigned, because signed indices cost an extra check for wraparound; negative changes rely on overflow.
        (offsets @ strides).view(np.uint64),
        (bits * (offsets < 0).astype(np.uint64)).sum(1, dtype=np.uint64),
        (bits * (offsets > 0).astype(np.uint64)).sum(1, dtype=np.uint64),
        bits[np.asarray(geometry.wraps)].sum(dtype=np.uint64),
    )


@njit(**OPTIONS)
def borders(index, sides, strides):  # type: ignore[no-untyped-def]
    """Bit masks of the axes along which a point is the first, and of those along which it is the last."""
    first, last, bit = uint64(0), uint64(0), uint64(1)
    for axis in range(len(sides)):
        coordinate = index // strides[axis]
        index -= coordinate * strides[axis]
        if coordinate == 0:
            first |= bit
        if coordinate + uintp(1) == sides[axis]:
            last |= bit
        bit <<= uint64(1)
    return first, last


@njit(**OPTIONS)
def wrap_index(there, below, above, sides, strides, around):  # type: ignore[no-untyped-def]
    """Index of a point beyond an end of some axes: wrapped around periodic axes, or ``NOWHERE``."""
    if (below | above) & ~around:
        return uintp(NOWHERE)
    bit = uint64(1)
    for axis in range(len(sides)):
        if below & bit:
            there += sides[axis] * strides[axis]
        elif above & bit:
            there -= sides[axis] * strides[axis]
        bit <<= uint64(1)
    return there


@njit(**OPTIONS)
def trace_back(taken, index, steps):  # type: ignore[no-untyped-def]
    """Path from a point back to the start of the search, following the steps taken in reverse."""
    sides, strides, deltas, downs, ups, around = steps
    directions, moves = uintp(len(deltas) // 2), uintp(len(deltas))
    found, count = np.empty(64, np.uint64), 0
    while True:
        if count == len(found):
            found = np.concatenate((found, found))
        found[count] = index
        count += 1
        if taken[index] == ROOT:
            return found[:count]
        move = (uintp(taken[index]) + directions) % moves
        first, last = borders(index, sides, strides)
        below, above = first & downs[move], last & ups[move]
        index += deltas[move]
        if below | above:
            index = wrap_index(index, below, above, sides, strides, around)
