"""Dijkstra's search from both ends on a lattice, compiled: the quicker one where a bound for what is left is weak.

Two balls of half the radius hold fewer points than one: half of them on a plane, a quarter in space. Points wait in
rings of buckets as in the engine's whole maps (``engine/backends/numba/kernels/stencil_relax.py``).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64, uintp

from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.lattice.compiled.steps import NOWHERE, OPTIONS, ROOT, borders, brought_back

__all__ = ["bidirectional"]

_NONE = 2**32 - 1
#: Places of a side's notes: the bucket whose turn it is, how many points wait, and the first entry that is free.
_NOW, _WAITING, _FREE = 0, 1, 2


@njit(**OPTIONS)
def _expand(side, costs, edges, steps, found, taken, heads, entries, heap, notes, inverse, best):  # type: ignore[no-untyped-def]
    """Settle one bucket of one side: 0 leaves the start, 1 looks back from the goal.

    ``best`` is the cost of the cheapest way found so far, and where its halves meet; ``entries`` and ``heap`` grow. A
    bucket's points are taken in any order; one that falls again inside it comes again, by a heap.
    """
    sides, strides, deltas, downs, ups, around = steps
    moves, mask = uintp(len(deltas)), uintp(len(heads) - 1)
    directions, zero, other = moves // uintp(2), uintp(0), 1 - side
    items, nexts = entries
    keys, places = heap
    now, size = uintp(notes[_NOW]), 0
    cheapest, meeting = best
    while True:
        entry = uintp(heads[now & mask])
        if entry != uintp(_NONE):
            place = items[entry]
            heads[now & mask] = nexts[entry]
            nexts[entry] = notes[_FREE]
            notes[_FREE] = entry
            notes[_WAITING] -= uint64(1)
            if uintp(found[place, side] * inverse) != now:
                continue  # it was reached on a shorter way since
        elif size > 0:
            key, place = keys[0], places[0]
            size -= 1
            sink(keys, places, size)
            if key > found[place, side]:
                continue
        else:
            break
        if notes[_WAITING] + moves >= uintp(len(items)):
            room = len(items)
            items = np.concatenate((items, items))
            nexts = np.concatenate((nexts, np.arange(room + 1, 2 * room + 1).astype(np.uint32)))
        if size + np.int64(moves) >= len(keys):
            keys, places = np.concatenate((keys, keys)), np.concatenate((places, places))
        origin, entering = found[place, side], costs[zero, place]
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
                # Looking back, the way goes from there to here, and pays for entering here.
                step = entering if side == 1 else costs[zero, there]
            reached = origin + step
            if reached < found[there, side] and reached < cheapest:
                found[there, side], taken[there, side] = reached, move
                if reached + found[there, other] < cheapest:
                    cheapest, meeting = reached + found[there, other], there
                number = uintp(reached * inverse)
                if number == now:
                    push(keys, places, size, reached, there)
                    size += 1
                else:
                    entry = uintp(notes[_FREE])
                    notes[_FREE] = nexts[entry]
                    items[entry] = there
                    nexts[entry] = heads[number & mask]
                    heads[number & mask] = entry
                    notes[_WAITING] += uint64(1)
    notes[_NOW] = now + uintp(1)
    return (items, nexts), (keys, places), (cheapest, meeting)


@njit(**OPTIONS)
def _side(place, buckets):  # type: ignore[no-untyped-def]
    """Empty buckets but for the first, in which ``place`` waits; entries and a heap with some room; notes."""
    room = 4096
    heads = np.full(buckets, _NONE, np.uint32)
    items, nexts = np.empty(room, np.uint64), np.arange(1, room + 1).astype(np.uint32)
    items[0], nexts[0], heads[0] = place, _NONE, 0
    return heads, (items, nexts), (np.empty(1024), np.empty(1024, np.uint64)), np.array([0, 1, 1], np.uint64)


@njit(**OPTIONS)
def bidirectional(costs, edges, steps, width, buckets, start, goal):  # type: ignore[no-untyped-def]
    """By which step each point was reached from either end and at what cost; where both meet, and the cost there.

    It is infinite where no path leads from end to end.

    ``costs`` has one row of points, or one of edges for each forward step; no step is longer than ``buckets - 2`` times
    ``width``, and ``buckets`` is a power of two.
    """
    points, inverse = costs.shape[1], 1.0 / width
    found, taken = np.full((points, 2), math.inf), np.empty((points, 2), np.uint32)
    found[start, 0], found[goal, 1] = 0.0, 0.0
    taken[start, 0], taken[goal, 1] = ROOT, ROOT
    heads0, entries0, heap0, notes0 = _side(start, buckets)
    heads1, entries1, heap1, notes1 = _side(goal, buckets)
    best = (math.inf, uintp(start)) if start != goal else (0.0, uintp(start))
    # What has not been settled is at least as far from its end as the bucket whose turn it is.
    while notes0[_WAITING] > 0 and notes1[_WAITING] > 0 and float(notes0[_NOW] + notes1[_NOW]) * width < best[0]:
        if notes0[_WAITING] <= notes1[_WAITING]:
            entries0, heap0, best = _expand(
                0, costs, edges, steps, found, taken, heads0, entries0, heap0, notes0, inverse, best
            )
        else:
            entries1, heap1, best = _expand(
                1, costs, edges, steps, found, taken, heads1, entries1, heap1, notes1, inverse, best
            )
    return taken, found, best[1], best[0]
