"""Shortest distances on a lattice in Numba: Dijkstra with buckets.

The lattice is copied with a ghost layer, so that a neighbour is one addition away and no step needs a boundary check: a
ghost is closed or, if the axis is periodic, refers to the corresponding point.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, njit, uintp

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.numba.arrays import Array
from hpfracc.engine.backends.numba.heap import push, sink
from hpfracc.engine.numerics.stencils import bucket_ring, forward_offsets
from hpfracc.engine.primitives.stencil_relax import read_periodic
from hpfracc.engine.workers import even_blocks, run_blocks

#: Value of a ghost of a periodic axis instead of a cost.
_WRAPS = -1.0
#: Marks an empty bucket.
_NONE = 2**32 - 1
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@njit(**_OPTIONS)
def _unwrapped(ghost, sides, strides):  # type: ignore[no-untyped-def]
    """The point that corresponds to a ghost."""
    place = rest = int64(ghost)
    for axis in range(len(sides)):
        coordinate = rest // strides[axis]
        rest -= coordinate * strides[axis]
        if coordinate == 0:
            place += sides[axis] * strides[axis]
        elif coordinate == sides[axis] + 1:
            place -= sides[axis] * strides[axis]
    return uintp(place)


@njit(**_OPTIONS)
def _dijkstra(costs, kinds, found, sources, moves, sides, strides, edges, width, buckets):  # type: ignore[no-untyped-def]
    """Lower ``found`` from ``sources``, cheapest first; ``costs`` has one row, or one for each forward move.

    Points are queued in a ring of buckets, each for a range of distances of length ``width``; no step is longer than
    the ring. Those of the nearest bucket are processed in any order. If one is improved within its bucket, because a
    step is shorter than a bucket, it is processed again through a heap; then its distance is final.
    """
    one, directions, count = uintp(1), uintp(len(moves) // 2), uintp(len(moves))
    inverse, mask = 1.0 / width, uintp(buckets - 1)
    heads = np.full(buckets, _NONE, np.uint32)
    room = 4096
    # Entries of the buckets: an index, and the next entry. Free ones form a list too.
    items, nexts = np.empty(room, np.uint64), np.arange(1, room + 1).astype(np.uint32)
    free, waiting, turn = uintp(0), 0, 0
    capacity, size = 1024, 0
    keys, heap = np.empty(capacity, np.float64), np.empty(capacity, np.uint64)
    base = float(found[sources[0]])
    now = uintp(0)
    while True:
        if waiting == 0:
            if turn == len(sources):
                break
            now = uintp((float(found[sources[turn]]) - base) * inverse)
        # Add sources of the current bucket to the reached points.
        while turn < len(sources) and uintp((float(found[sources[turn]]) - base) * inverse) <= now:
            if waiting + 1 >= room:
                items = np.concatenate((items, items))
                nexts = np.concatenate((nexts, np.arange(room + 1, 2 * room + 1).astype(np.uint32)))
                room *= 2
            place = sources[turn]
            turn += 1
            if uintp((float(found[place]) - base) * inverse) < now:
                continue  # already settled from another source
            entry = free
            free = uintp(nexts[entry])
            items[entry] = place
            nexts[entry] = heads[now & mask]
            heads[now & mask] = entry
            waiting += 1
        while True:
            entry = uintp(heads[now & mask])
            if entry != uintp(_NONE):
                place = items[entry]
                heads[now & mask] = nexts[entry]
                nexts[entry] = free
                free = entry
                waiting -= 1
                if uintp((float(found[place]) - base) * inverse) != now:
                    continue  # a shorter path was found since
            elif size > 0:
                key, place = keys[0], heap[0]
                size -= 1
                sink(keys, heap, size)
                if key > found[place]:
                    continue
            else:
                break
            if waiting + len(moves) >= room:
                items = np.concatenate((items, items))
                nexts = np.concatenate((nexts, np.arange(room + 1, 2 * room + 1).astype(np.uint32)))
                room *= 2
            origin = found[place]
            move = uintp(0)
            while move < count:
                there = place + moves[move]
                if edges:
                    kind = kinds[there]
                    if kind == 2:
                        there = _unwrapped(there, sides, strides)
                    elif kind == 1:
                        move += one
                        continue
                    cost = costs[move, place] if move < directions else costs[move - directions, there]
                else:
                    cost = costs[uintp(0), there]
                    if cost < 0:
                        there = _unwrapped(there, sides, strides)
                        cost = costs[uintp(0), there]
                move += one
                reached = origin + cost
                if reached < found[there]:
                    found[there] = reached
                    number = uintp((float(reached) - base) * inverse)
                    if number == now:
                        if size == capacity:
                            keys, heap = np.concatenate((keys, keys)), np.concatenate((heap, heap))
                            capacity *= 2
                        push(keys, heap, size, float(reached), there)
                        size += 1
                        continue
                    entry = free
                    free = uintp(nexts[entry])
                    items[entry] = there
                    nexts[entry] = heads[number & mask]
                    heads[number & mask] = entry
                    waiting += 1
        now += one


@njit(**_OPTIONS)
def _survey(costs):  # type: ignore[no-untyped-def]
    """Close points without a cost; returns mean and maximum of the open ones (0 for none)."""
    greatest, total, count = 0.0, 0.0, 0
    for place in range(len(costs)):
        cost = float(costs[place])
        if cost >= 0:
            if cost < math.inf:
                greatest = max(greatest, cost)
                total += cost
                count += 1
        else:
            costs[place] = math.inf
    return total / max(1, count), greatest


@njit(**_OPTIONS)
def _sources(found):  # type: ignore[no-untyped-def]
    """Discard invalid start costs; returns the indices of the others."""
    count = 0
    for place in range(len(found)):
        if found[place] < math.inf and found[place] > -math.inf:
            count += 1
        else:
            found[place] = math.inf
    places = np.empty(count, np.uint64)
    for place in range(len(found)):
        if count == 0:
            break
        if found[place] < math.inf:
            places[len(places) - count] = place
            count -= 1
    return places


def by_distance(
    costs: Array,
    start: Array,
    *,
    neighbourhood: str = "von_neumann",
    periodic: Any = False,
    edges: bool = False,
    workers: int = 1,
) -> Array:
    """The nearest point first; maps are divided among threads."""
    shape = costs.shape[1:] if edges else costs.shape
    result = np.empty(start.shape, start.dtype)
    if not start.size:
        return result
    wraps = read_periodic(periodic, len(shape))
    around = tuple(side + 2 for side in shape)
    inside = tuple(slice(1, side + 1) for side in shape)
    strides = np.cumprod((1, *around[:0:-1]), dtype=np.int64)[::-1].copy()
    ahead = np.asarray(forward_offsets(len(shape), neighbourhood), np.int64) @ strides
    # Unsigned, because signed indices need an extra check; negative moves wrap around.
    moves, sides = np.concatenate((ahead, -ahead)).view(np.uint64), np.asarray(shape, np.int64)

    stack = costs if edges else costs[None]
    padded = np.full((len(stack), *around), np.inf, start.dtype)
    padded[(slice(None), *inside)] = stack
    flat = padded.reshape(len(stack), -1)
    ring = bucket_ring(*_survey(padded.reshape(-1)))
    kinds = np.zeros(around if edges else (1,) * len(shape), np.uint8)
    if edges:
        kinds[...] = 1
        kinds[tuple(slice(None) if wrap else slice(1, -1) for wrap in wraps)] = 2
        kinds[inside] = 0
    else:
        for axis, wrap in enumerate(wraps):
            if wrap:
                # Within the faces of the other bounded axes; beyond those it is closed.
                face = [slice(None) if other else slice(1, -1) for other in wraps]
                for end in (slice(0, 1), slice(-1, None)):
                    padded[(0, *face[:axis], end, *face[axis + 1 :])] = _WRAPS

    lattices = start.reshape(-1, *shape)
    out = result.reshape(lattices.shape)

    def work(block: tuple[int, int]) -> None:
        for row in range(*block):
            found = np.full(around, np.inf, start.dtype)
            found[inside] = lattices[row]
            line = found.reshape(-1)
            sources = _sources(line)
            if len(sources):
                ordered = sources[np.argsort(line[sources], kind="stable")]
                _dijkstra(flat, kinds.reshape(-1), line, ordered, moves, sides, strides, edges, *ring)
            out[row] = found[inside]

    run_blocks(work, even_blocks(len(lattices), workers), workers)
    return result


KERNELS: dict[str, Kernel] = {"dijkstra": Kernel(by_distance)}
