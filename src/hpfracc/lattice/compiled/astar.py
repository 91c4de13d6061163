"""A* on a lattice, compiled. The faster search if the number of remaining steps is a good bound of their cost.

Not an engine primitive: it stops at the goal, so its work depends on the data, and the result is a path of any length.
Imported only by searches on large lattices.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uintp

from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.lattice.compiled.steps import NOWHERE, OPTIONS, ROOT, borders, wrap_index

__all__ = ["astar"]


@njit(**OPTIONS)
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


@njit(**OPTIONS)
def astar(costs, edges, steps, least, moore, start, goal):  # type: ignore[no-untyped-def]
    """The step by which each point was reached, and its cost. The goal's cost is infinite if there is no path.

    ``costs`` has one row of points, or one row of edges for each forward step. ``least`` is a lower bound of all costs.
    The cost found is minimal up to rounding.
    """
    sides, strides, deltas, downs, ups, around = steps
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
    found[start], taken[start] = 0.0, ROOT
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
        first, last = borders(index, sides, strides)
        for move in range(moves):
            there = index + deltas[move]
            below, above = first & downs[move], last & ups[move]
            if below | above:
                there = wrap_index(there, below, above, sides, strides, around)
                if there == uintp(NOWHERE):
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
