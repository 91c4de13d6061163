"""Steps on a lattice, compiled: who lies where a step leads, with one division an axis for all steps of a point."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64, uintp

from hpfracc.lattice._geometry import Array, Geometry

__all__ = ["NOWHERE", "OPTIONS", "ROOT", "borders", "brought_back", "make_steps", "way_back"]

OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
#: Where a step leads that leaves the lattice.
NOWHERE = 2**64 - 1
#: The step by which the first point of a search was reached.
ROOT = 2**32 - 1

Steps = tuple[Array, Array, Array, Array, Array, np.uint64]


def make_steps(geometry: Geometry) -> Steps:
    """What the compiled searches know of a lattice, as arrays.

    Sides and strides; of each step (the forward ones, then their opposites) by how much it moves an index, and the axes
    along which it goes down and up; and the axes that are periodic. Axes are the bits of one number.
    """
    ahead = np.asarray(geometry.forward, np.int64)
    offsets = np.concatenate((ahead, -ahead))
    bits = np.uint64(1) << np.arange(len(geometry.shape), dtype=np.uint64)
    strides = np.asarray(geometry.strides, np.int64)
    return (
        np.asarray(geometry.shape, np.int64).view(np.uint64),
        strides.view(np.uint64),
        # Unsigned, for an index that may be negative is looked at twice; going back is going round.
        (offsets @ strides).view(np.uint64),
        (bits * (offsets < 0).astype(np.uint64)).sum(1, dtype=np.uint64),
        (bits * (offsets > 0).astype(np.uint64)).sum(1, dtype=np.uint64),
        bits[np.asarray(geometry.wraps)].sum(dtype=np.uint64),
    )


@njit(**OPTIONS)
def borders(place, sides, strides):  # type: ignore[no-untyped-def]
    """The axes along which a point is the first one, and those along which it is the last."""
    first, last, bit = uint64(0), uint64(0), uint64(1)
    for axis in range(len(sides)):
        coordinate = place // strides[axis]
        place -= coordinate * strides[axis]
        if coordinate == 0:
            first |= bit
        if coordinate + uintp(1) == sides[axis]:
            last |= bit
        bit <<= uint64(1)
    return first, last


@njit(**OPTIONS)
def brought_back(there, below, above, sides, strides, around):  # type: ignore[no-untyped-def]
    """The index of a point beyond the first or the last one along some axes: on their other side, or nowhere."""
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
def way_back(taken, place, steps):  # type: ignore[no-untyped-def]
    """From a place to the first point of a search, by the steps that were taken the other way."""
    sides, strides, deltas, downs, ups, around = steps
    directions, moves = uintp(len(deltas) // 2), uintp(len(deltas))
    found, count = np.empty(64, np.uint64), 0
    while True:
        if count == len(found):
            found = np.concatenate((found, found))
        found[count] = place
        count += 1
        if taken[place] == ROOT:
            return found[:count]
        move = (uintp(taken[place]) + directions) % moves
        first, last = borders(place, sides, strides)
        below, above = first & downs[move], last & ups[move]
        place += deltas[move]
        if below | above:
            place = brought_back(place, below, above, sides, strides, around)
