"""A* on a lattice, compiled.

No primitive of the engine: it stops when it gets there, so that what it looks at depends on the data, and the answer is
a path of any length. Imported only by a search on a lattice that is large enough.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

__all__ = ["astar"]

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@njit(**_OPTIONS)
def _steps_left(place, goal, sides, strides, wraps, moore):  # type: ignore[no-untyped-def]
    """Steps between two points if nothing stood between them."""
    total = 0
    for axis in range(len(sides)):
        here, there = place // strides[axis], goal // strides[axis]
        place -= here * strides[axis]
        goal -= there * strides[axis]
        steps = abs(here - there)
        if wraps[axis]:
            steps = min(steps, sides[axis] - steps)
        total = max(total, steps) if moore else total + steps
    return total


@njit(**_OPTIONS)
def _push(bounds, items, size, bound, item):  # type: ignore[no-untyped-def]
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 1
        if bounds[parent] <= bound:
            break
        bounds[hole], items[hole] = bounds[parent], items[parent]
        hole = parent
    bounds[hole], items[hole] = bound, item


@njit(**_OPTIONS)
def _sink(bounds, items, size):  # type: ignore[no-untyped-def]
    bound, item = bounds[size], items[size]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        if child + 1 < size and bounds[child + 1] < bounds[child]:
            child += 1
        if bounds[child] >= bound:
            break
        bounds[hole], items[hole] = bounds[child], items[child]
        hole = child
    bounds[hole], items[hole] = bound, item


@njit(**_OPTIONS)
def astar(costs, edges, sides, strides, wraps, forward, least, moore, start, goal):  # type: ignore[no-untyped-def]
    """Who was reached from whom, and the cost at the goal: infinite where no path leads there.

    ``costs`` has one row of points, or one of edges for each forward offset; ``least`` is no more than any of them.
    """
    points = 1
    for side in sides:
        points *= side
    axes = len(sides)
    reached, parents = np.full(points, math.inf), np.full(points, -1, np.int64)
    settled = np.zeros(points, np.bool_)
    capacity, size = 1024, 1
    bounds, items = np.empty(capacity), np.empty(capacity, np.int64)
    here = np.empty(axes, np.int64)
    reached[start], parents[start] = 0.0, start
    bounds[0], items[0] = least * _steps_left(start, goal, sides, strides, wraps, moore), start
    while size > 0:
        place = items[0]
        size -= 1
        _sink(bounds, items, size)
        if place == goal:
            break
        if settled[place]:
            continue
        settled[place] = True
        rest = place
        for axis in range(axes):
            here[axis] = rest // strides[axis]
            rest -= here[axis] * strides[axis]
        if size + 2 * len(forward) >= capacity:
            bounds, items = np.concatenate((bounds, bounds)), np.concatenate((items, items))
            capacity *= 2
        for direction in range(len(forward)):
            for sign in (1, -1):
                there, outside = 0, False
                for axis in range(axes):
                    coordinate = here[axis] + sign * forward[direction, axis]
                    if coordinate < 0 or coordinate >= sides[axis]:
                        if not wraps[axis]:
                            outside = True
                            break
                        coordinate += sides[axis] if coordinate < 0 else -sides[axis]
                    there += coordinate * strides[axis]
                if outside:
                    continue
                cost = costs[direction, place if sign > 0 else there] if edges else costs[0, there]
                total = reached[place] + cost
                if total < reached[there]:
                    reached[there], parents[there] = total, place
                    # The bound never falls along a way, so that whoever is settled is settled; but for a rounding.
                    settled[there] = False
                    bound = total + least * _steps_left(there, goal, sides, strides, wraps, moore)
                    _push(bounds, items, size, bound, there)
                    size += 1
    return parents, reached[goal]
