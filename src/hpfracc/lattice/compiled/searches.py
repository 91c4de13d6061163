"""Searches for one path on a lattice, compiled: A*, and bidirectional Dijkstra.

A* is faster if the number of remaining steps is a good bound of their cost. Otherwise the search is bidirectional: two
balls of half the radius hold fewer points than one ball, half as many in 2D and a quarter in 3D. Its points wait in a
ring of buckets, as in the engine's distance maps (``engine/backends/numba/kernels/stencil_relax.py``). The neighbours
of a point take one division per axis for all of its steps.

Not engine primitives: they stop at the goal, so their work depends on the data, and the result is a path of any length.
Imported only by searches on large lattices.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64, uintp

from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.lattice.geometry import Array, Geometry

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}
#: Index that stands for a point outside the lattice.
_NOWHERE = 2**64 - 1
#: Marks the first point of a search, which no step reached.
_ROOT = 2**32 - 1

_NONE = 2**32 - 1
#: Indices into a side's state: the current bucket, the number of waiting points, and the first free entry.
_NOW, _WAITING, _FREE = 0, 1, 2

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


@njit(**_OPTIONS)
def _borders(index, sides, strides):  # type: ignore[no-untyped-def]
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


@njit(**_OPTIONS)
def _neighbour(index, move, first, last, steps):  # type: ignore[no-untyped-def]
    """Index of the point one step away from a point with these borders, or ``_NOWHERE`` if the lattice ends there."""
    sides, strides, deltas, downs, ups, around = steps
    there, below, above = index + deltas[move], first & downs[move], last & ups[move]
    if not below | above:
        return there
    if (below | above) & ~around:
        return uintp(_NOWHERE)
    bit = uint64(1)
    for axis in range(len(sides)):
        if below & bit:
            there += sides[axis] * strides[axis]
        elif above & bit:
            there -= sides[axis] * strides[axis]
        bit <<= uint64(1)
    return there


@njit(**_OPTIONS)
def trace_back(taken, index, steps):  # type: ignore[no-untyped-def]
    """Path from a point back to the start of the search, following the steps taken in reverse."""
    sides, strides, deltas = steps[:3]
    directions, moves = uintp(len(deltas) // 2), uintp(len(deltas))
    found, count = np.empty(64, np.uint64), 0
    while True:
        if count == len(found):
            found = np.concatenate((found, found))
        found[count] = index
        count += 1
        if taken[index] == _ROOT:
            return found[:count]
        move = (uintp(taken[index]) + directions) % moves
        index = _neighbour(index, move, *_borders(index, sides, strides), steps)


@njit(**_OPTIONS)
def _steps_left(index, target, moore, sides, strides, around):  # type: ignore[no-untyped-def]
    """Number of steps to the point with coordinates ``target``, without obstacles."""
    total = 0
    for axis in range(len(sides)):
        coordinate = index // strides[axis]
        index -= coordinate * strides[axis]
        left = abs(np.int64(coordinate) - target[axis])
        if (around >> np.uint64(axis)) & np.uint64(1):
            left = min(left, np.int64(sides[axis]) - left)
        total = max(total, left) if moore else total + left
    return total


@njit(**_OPTIONS)
def astar(costs, edges, steps, least, moore, start, goal):  # type: ignore[no-untyped-def]
    """The step by which each point was reached, and its cost. The goal's cost is infinite if there is no path.

    ``costs`` has one row of points, or one row of edges for each forward step. ``least`` is a lower bound of all costs.
    The cost found is minimal up to rounding.
    """
    sides, strides, deltas, _, _, around = steps
    points, moves = costs.shape[1], uintp(len(deltas))
    directions = moves // uintp(2)
    found, taken = np.full(points, math.inf), np.empty(points, np.uint32)
    target = np.empty(len(sides), np.int64)
    rest = goal
    for axis in range(len(target)):
        target[axis] = rest // strides[axis]
        rest -= uintp(target[axis]) * strides[axis]
    settled = np.zeros(points, np.bool_)
    capacity, size = 1024, 1
    bounds, items = np.empty(capacity), np.empty(capacity, np.uint64)
    found[start], taken[start] = 0.0, _ROOT
    bounds[0], items[0] = 0.0, start
    while size > 0:
        index = items[0]
        size -= 1
        sink(bounds, items, size)
        if index == goal:
            break
        if settled[index]:
            continue
        settled[index] = True
        if size + len(deltas) >= capacity:
            bounds, items = np.concatenate((bounds, bounds)), np.concatenate((items, items))
            capacity *= 2
        first, last = _borders(index, sides, strides)
        for move in range(moves):
            there = _neighbour(index, move, first, last, steps)
            if there == uintp(_NOWHERE):
                continue
            if edges:
                step = costs[move, index] if move < directions else costs[move - directions, there]
            else:
                step = costs[uintp(0), there]
            total = found[index] + step
            if total < found[there]:
                found[there], taken[there] = total, move
                # The bound is consistent, so a settled point is reopened only because of rounding.
                settled[there] = False
                left = _steps_left(there, target, moore, sides, strides, around)
                push(bounds, items, size, total + least * left, there)
                size += 1
    return taken, found


@njit(**_OPTIONS)
def _expand(side, costs, edges, steps, found, taken, heads, entries, heap, state, inverse, best):  # type: ignore[no-untyped-def]
    """Settle the current bucket of one side: 0 searches forward from the start, 1 backward from the goal.

    ``best`` is the cost of the cheapest path so far and the point where its halves meet. ``entries`` and ``heap`` may
    grow. The points of a bucket are processed in any order; one that is improved into the same bucket goes to a heap.
    """
    sides, strides, deltas = steps[:3]
    moves, mask = uintp(len(deltas)), uintp(len(heads) - 1)
    directions, zero, other = moves // uintp(2), uintp(0), 1 - side
    items, nexts = entries
    keys, indices = heap
    now, size = uintp(state[_NOW]), 0
    cheapest, meeting = best
    while True:
        entry = uintp(heads[now & mask])
        if entry != uintp(_NONE):
            index = items[entry]
            heads[now & mask] = nexts[entry]
            nexts[entry] = state[_FREE]
            state[_FREE] = entry
            state[_WAITING] -= uint64(1)
            if uintp(found[index, side] * inverse) != now:
                continue  # a shorter path to it was found since
        elif size > 0:
            key, index = keys[0], indices[0]
            size -= 1
            sink(keys, indices, size)
            if key > found[index, side]:
                continue
        else:
            break
        if state[_WAITING] + moves >= uintp(len(items)):
            room = len(items)
            items = np.concatenate((items, items))
            nexts = np.concatenate((nexts, np.arange(room + 1, 2 * room + 1).astype(np.uint32)))
        if size + np.int64(moves) >= len(keys):
            keys, indices = np.concatenate((keys, keys)), np.concatenate((indices, indices))
        origin, entering = found[index, side], costs[zero, index]
        first, last = _borders(index, sides, strides)
        for move in range(moves):
            there = _neighbour(index, move, first, last, steps)
            if there == uintp(_NOWHERE):
                continue
            if edges:
                step = costs[move, index] if move < directions else costs[move - directions, there]
            else:
                # Backward, the step goes from there to here and pays for entering here.
                step = entering if side == 1 else costs[zero, there]
            reached = origin + step
            if reached < found[there, side] and reached < cheapest:
                found[there, side], taken[there, side] = reached, move
                if reached + found[there, other] < cheapest:
                    cheapest, meeting = reached + found[there, other], there
                number = uintp(reached * inverse)
                if number == now:
                    push(keys, indices, size, reached, there)
                    size += 1
                else:
                    entry = uintp(state[_FREE])
                    state[_FREE] = nexts[entry]
                    items[entry] = there
                    nexts[entry] = heads[number & mask]
                    heads[number & mask] = entry
                    state[_WAITING] += uint64(1)
    state[_NOW] = now + uintp(1)
    return (items, nexts), (keys, indices), (cheapest, meeting)


@njit(**_OPTIONS)
def _side(index, buckets):  # type: ignore[no-untyped-def]
    """Initial state of one side: buckets with ``index`` in the first, entries, an empty heap, and counters."""
    room = 4096
    heads = np.full(buckets, _NONE, np.uint32)
    items, nexts = np.empty(room, np.uint64), np.arange(1, room + 1).astype(np.uint32)
    items[0], nexts[0], heads[0] = index, _NONE, 0
    return heads, (items, nexts), (np.empty(1024), np.empty(1024, np.uint64)), np.array([0, 1, 1], np.uint64)


@njit(**_OPTIONS)
def bidirectional(costs, edges, steps, width, buckets, start, goal):  # type: ignore[no-untyped-def]
    """Search from both ends.

    Returns the step by which each point was reached from either end, the costs, the meeting point and the cost of the
    path through it, which is infinite if there is no path.

    ``costs`` has one row of points, or one row of edges for each forward step. No step costs more than
    ``(buckets - 2) * width``, and ``buckets`` is a power of two.
    """
    points, inverse = costs.shape[1], 1.0 / width
    found, taken = np.full((points, 2), math.inf), np.empty((points, 2), np.uint32)
    found[start, 0], found[goal, 1] = 0.0, 0.0
    taken[start, 0], taken[goal, 1] = _ROOT, _ROOT
    heads0, entries0, heap0, state0 = _side(start, buckets)
    heads1, entries1, heap1, state1 = _side(goal, buckets)
    best = (math.inf, uintp(start)) if start != goal else (0.0, uintp(start))
    # Every unsettled point is at least as far from its end as the current bucket.
    while state0[_WAITING] > 0 and state1[_WAITING] > 0 and float(state0[_NOW] + state1[_NOW]) * width < best[0]:
        if state0[_WAITING] <= state1[_WAITING]:
            entries0, heap0, best = _expand(
                0, costs, edges, steps, found, taken, heads0, entries0, heap0, state0, inverse, best
            )
        else:
            entries1, heap1, best = _expand(
                1, costs, edges, steps, found, taken, heads1, entries1, heap1, state1, inverse, best
            )
    return taken, found, best[1], best[0]
