"""A* on a lattice, compiled: the quicker search where the number of steps left is a good bound for what they cost.

No primitive of the engine: it stops when it gets there, so that what it looks at depends on the data, and the answer is
a path of any length. Imported only by a search on a lattice that is large enough.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uintp

from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.lattice.compiled.steps import NOWHERE, OPTIONS, ROOT, borders, brought_back

__all__ = ["astar"]


@njit(**OPTIONS)
def _steps_left(place, target, moore, sides, strides, around):  # type: ignore[no-untyped-def]
    """Steps to the point with the coordinates ``target`` if nothing stood between."""
    total = 0
    for axis in range(len(sides)):
        coordinate = place // strides[axis]
        place -= coordinate * strides[axis]
        left = abs(np.int64(coordinate) - target[axis])
        if (around >> np.uint64(axis)) & np.uint64(1):
            left = min(left, np.int64(sides[axis]) - left)
        total = max(total, left) if moore else total + left
    return total


@njit(**OPTIONS)
def astar(costs, edges, steps, least, moore, start, goal):  # type: ignore[no-untyped-def]
    """By which step each point was reached, and at what cost: infinite at the goal where no path leads there.

    ``costs`` has one row of points, or one of edges for each forward step; ``least`` is no more than any of them. The
    bound is rounded, as costs are: what is found costs the least but for a rounding.
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
        place = items[0]
        size -= 1
        sink(bounds, items, size)
        if place == goal:
            break
        if settled[place]:
            continue
        settled[place] = True
        if size + len(deltas) >= capacity:
            bounds, items = np.concatenate((bounds, bounds)), np.concatenate((items, items))
            capacity *= 2
        first, last = borders(place, sides, strides)
        for move in range(moves):
            there = place + deltas[move]
            below, above = first & downs[move], last & ups[move]
            if below | above:
                there = brought_back(there, below, above, sides, strides, around)
                if there == uintp(NOWHERE):
                    continue
            if edges:
                step = costs[move, place] if move < directions else costs[move - directions, there]
            else:
                step = costs[uintp(0), there]
            total = found[place] + step
            if total < found[there]:
                found[there], taken[there] = total, move
                # The bound never falls along a way, so that whoever is settled is settled; but for a rounding.
                settled[there] = False
                left = _steps_left(there, target, moore, sides, strides, around)
                push(bounds, items, size, total + least * left, there)
                size += 1
    return taken, found
