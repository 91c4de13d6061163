"""Bidirectional Dijkstra search on a lattice, compiled. The faster search if bounds of the remaining cost are weak.

Two balls of half the radius hold fewer points than one ball: half as many in 2D, a quarter in 3D. Points wait in a ring
of buckets, as in the engine's distance maps (``engine/backends/numba/kernels/stencil_relax.py``).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64, uintp

from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.lattice.compiled.steps import NOWHERE, OPTIONS, ROOT, borders, wrap_index

__all__ = ["bidirectional"]

_NONE = 2**32 - 1
#: Indices into a side's state: the current bucket, the number of waiting points, and the first free entry.
_NOW, _WAITING, _FREE = 0, 1, 2


@njit(**OPTIONS)
def _expand(side, costs, edges, steps, found, taken, heads, entries, heap, state, inverse, best):  # type: ignore[no-untyped-def]
    """Settle the current bucket of one side: 0 searches forward from the start, 1 backward from the goal.

    ``best`` is the cost of the cheapest path so far and the point where its halves meet. ``entries`` and ``heap`` may
    grow. The points of a bucket are processed in any order; one that is improved into the same bucket goes to a heap.
    """
    sides, strides, deltas, downs, ups, around = steps
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


@njit(**OPTIONS)
def _side(index, buckets):  # type: ignore[no-untyped-def]
    """Initial state of one side: buckets with ``index`` in the first, entries, an empty heap, and counters."""
    room = 4096
    heads = np.full(buckets, _NONE, np.uint32)
    items, nexts = np.empty(room, np.uint64), np.arange(1, room + 1).astype(np.uint32)
    items[0], nexts[0], heads[0] = index, _NONE, 0
    return heads, (items, nexts), (np.empty(1024), np.empty(1024, np.uint64)), np.array([0, 1, 1], np.uint64)


@njit(**OPTIONS)
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
    taken[start, 0], taken[goal, 1] = ROOT, ROOT
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
