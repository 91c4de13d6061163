"""Shortest distances on a lattice in Numba: Dijkstra with a heap of four branches, or a queue where all steps cost one.

The lattice is copied with a layer of ghosts around it, so that a neighbour is one addition away and no step asks where
the lattice ends: a ghost is closed, or, where the axis is periodic, leads to the point it stands for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.kernels._arrays import Array
from hpfracc.engine.primitives._stencils import forward_offsets
from hpfracc.engine.primitives.stencil_relax import read_periodic
from hpfracc.engine.workers import even_blocks, run_blocks

__all__ = ["KERNELS"]

#: What a ghost of a periodic axis holds instead of a cost.
_WRAPS = -1.0
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@njit(**_OPTIONS)
def _unwrapped(place, sides, strides):  # type: ignore[no-untyped-def]
    """The point that a ghost stands for."""
    rest = place
    for axis in range(len(sides)):
        coordinate = rest // strides[axis]
        rest -= coordinate * strides[axis]
        if coordinate == 0:
            place += sides[axis] * strides[axis]
        elif coordinate == sides[axis] + 1:
            place -= sides[axis] * strides[axis]
    return place


@njit(**_OPTIONS)
def _push(keys, items, size, key, item):  # type: ignore[no-untyped-def]
    """Put an item into a heap that has room; each branches into four."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 2
        if keys[parent] <= key:
            break
        keys[hole] = keys[parent]
        items[hole] = items[parent]
        hole = parent
    keys[hole] = key
    items[hole] = item


@njit(**_OPTIONS)
def _sink(keys, items, size):  # type: ignore[no-untyped-def]
    """Take the first item of a heap away: the one behind its ``size`` others finds a new place."""
    key, item = keys[size], items[size]
    hole = 0
    while True:
        child = 4 * hole + 1
        if child >= size:
            break
        least, best = child, keys[child]
        for other in range(child + 1, min(child + 4, size)):
            if keys[other] < best:
                least, best = other, keys[other]
        if best >= key:
            break
        keys[hole] = best
        items[hole] = items[least]
        hole = least
    keys[hole] = key
    items[hole] = item


@njit(**_OPTIONS)
def _dijkstra(costs, kinds, found, moves, sides, strides, edges):  # type: ignore[no-untyped-def]
    """Lower ``found`` from its finite entries on; ``costs`` has one row, or one for each forward move."""
    directions = len(moves) // 2
    capacity = 1024
    keys, items = np.empty(capacity, found.dtype), np.empty(capacity, np.int64)
    size = 0
    for place in range(len(found)):
        if found[place] < math.inf:
            if size == capacity:
                keys, items = np.concatenate((keys, keys)), np.concatenate((items, items))
                capacity *= 2
            _push(keys, items, size, found[place], place)
            size += 1
    while size > 0:
        key, place = keys[0], items[0]
        size -= 1
        _sink(keys, items, size)
        if key > found[place]:
            continue  # it was reached on a shorter way since
        if size + 2 * directions >= capacity:
            keys, items = np.concatenate((keys, keys)), np.concatenate((items, items))
            capacity *= 2
        for move in range(2 * directions):
            there = place + moves[move]
            if edges:
                if kinds[there] != 0:
                    if kinds[there] == 1:
                        continue
                    there = _unwrapped(there, sides, strides)
                cost = costs[move, place] if move < directions else costs[move - directions, there]
            else:
                cost = costs[0, there]
                if cost < 0:
                    there = _unwrapped(there, sides, strides)
                    cost = costs[0, there]
            reached = key + cost
            if reached < found[there]:
                found[there] = reached
                _push(keys, items, size, reached, there)
                size += 1


@njit(**_OPTIONS)
def _breadth_first(costs, found, queue, moves, sides, strides, step):  # type: ignore[no-untyped-def]
    """The same where all open points cost ``step`` and all sources are equally far: whoever comes first is nearest."""
    last = 0
    for place in range(len(found)):
        if found[place] < math.inf:
            queue[last] = place
            last += 1
    first = 0
    while first < last:
        place = queue[first]
        first += 1
        reached = found[place] + step
        for move in moves:
            there = place + move
            cost = costs[0, there]
            if cost < 0:
                there = _unwrapped(there, sides, strides)
                cost = costs[0, there]
            if cost < math.inf and reached < found[there]:
                found[there] = reached
                queue[last] = there
                last += 1


def by_distance(
    costs: Array,
    start: Array,
    *,
    neighbourhood: str = "von_neumann",
    periodic: Any = False,
    edges: bool = False,
    workers: int = 1,
) -> Array:
    """The nearest point first; threads share the maps."""
    shape = costs.shape[1:] if edges else costs.shape
    result = np.empty(start.shape, start.dtype)
    if not start.size:
        return result
    wraps = read_periodic(periodic, len(shape))
    around = tuple(side + 2 for side in shape)
    inside = tuple(slice(1, side + 1) for side in shape)
    strides = np.cumprod((1, *around[:0:-1]), dtype=np.int64)[::-1].copy()
    ahead = np.asarray(forward_offsets(len(shape), neighbourhood), np.int64) @ strides
    moves, sides = np.concatenate((ahead, -ahead)), np.asarray(shape, np.int64)

    ghosts = np.full(around, np.inf, start.dtype)
    ghosts[tuple(slice(None) if wrap else slice(1, -1) for wrap in wraps)] = _WRAPS
    kinds = np.where(np.isinf(ghosts), 1, 2).astype(np.uint8)
    kinds[inside] = 0
    stack = costs if edges else costs[None]
    padded = np.empty((len(stack), *around), start.dtype)
    padded[...] = np.inf if edges else ghosts
    with np.errstate(invalid="ignore"):
        padded[(slice(None), *inside)] = np.where(stack >= 0, stack, np.inf)
    flat = padded.reshape(len(stack), -1)
    step = _common_step(flat, edges)

    lattices = start.reshape(-1, *shape)
    out = result.reshape(lattices.shape)

    def work(block: tuple[int, int]) -> None:
        for row in range(*block):
            found = np.full(around, np.inf, start.dtype)
            with np.errstate(invalid="ignore"):
                found[inside] = np.where(np.isfinite(lattices[row]), lattices[row], np.inf)
            line = found.reshape(-1)
            if step is not None and _one_price(line):
                queue = np.empty(out[row].size + 1, np.int64)
                _breadth_first(flat, line, queue, moves, sides, strides, step)
            else:
                _dijkstra(flat, kinds.reshape(-1), line, moves, sides, strides, edges)
            out[row] = found[inside]

    run_blocks(work, even_blocks(len(lattices), workers), workers)
    return result


def _common_step(flat: Array, edges: bool) -> Any:
    """What every open point costs, or None where that differs."""
    if edges:
        return None
    lowest = np.min(flat, where=flat >= 0, initial=np.inf)
    if not np.isfinite(lowest) or lowest == 0:
        return None
    return lowest if np.max(flat, where=np.isfinite(flat), initial=0) == lowest else None


def _one_price(line: Array) -> bool:
    prices = line[np.isfinite(line)]
    return not len(prices) or bool((prices == prices[0]).all())


KERNELS: dict[str, Kernel] = {"dijkstra": Kernel(by_distance)}
