r"""Relaxation by tiles on a GPU: the source of its kernel, and the rounds around it. Imports no CuPy.

A tile of 1,024 points is updated in shared memory until nothing in it changes, in any number of steps; only then is it
written back. Its neighbours are next, but only those in which a point can now be improved. So a wave crosses 32 points
per launch, and points that it has passed or not yet reached cost nothing.

Blocks of one launch read each other's tiles while these are written. They read a valid cost of the point, new or old,
and a block that improves a point schedules the affected tiles for the next launch after its own values are written: no
change is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hpfracc.engine.numerics.stencils import forward_offsets

THREADS = 256
#: Sides of a tile, by the number of axes; the last one is contiguous in memory.
_SIDES = {1: (1024,), 2: (32, 32), 3: (8, 8, 16)}
#: Points of a tile per thread, along the first axis.
_PER_THREAD = 4
#: Rounds between two checks; rounds enqueued after the last useful one do nothing.
_ROUNDS = 32

_SOURCE = r"""
typedef long long place_t;

// Where a step leads, and whether it leaves the tile or goes round the lattice; false where there is no such step.
__device__ __forceinline__ bool go(
    const place_t* here, const signed char* offset, const place_t* corner, const place_t* sides,
    const unsigned char* wraps, place_t* there, bool* leaves)
{
    const int tile[AXES] = TILE;
    *leaves = false;
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
        place_t moved = here[axis] + offset[axis];
        const place_t within = moved - corner[axis];
        if (within < 0 || within >= tile[axis]) *leaves = true;
        if (moved < 0 || moved >= sides[axis]) {
            if (!wraps[axis]) return false;
            moved += moved < 0 ? sides[axis] : -sides[axis];
            *leaves = true;
        }
        there[axis] = moved;
    }
    return true;
}

__device__ __forceinline__ place_t at(const place_t* coordinates, const place_t* sides) {
    place_t place = 0;
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) place = place * sides[axis] + coordinates[axis];
    return place;
}

extern "C" __global__ void relax_tiles(
    const REAL* __restrict__ costs, REAL* found, const place_t* __restrict__ active, place_t* next,
    unsigned long long* counts, int* marks, const int round, const place_t points, const place_t tiles,
    const place_t* __restrict__ shape, const unsigned char* __restrict__ around)
{
    __shared__ REAL shared[CELLS];
    volatile REAL* cells = shared;
    const int tile[AXES] = TILE;
    const int steps[AXES] = CELL_STEPS;
    const int jumps[MOVES] = JUMPS;
    const signed char offsets[MOVES][AXES] = OFFSETS;
    place_t sides[AXES], grid[AXES];
    unsigned char wraps[AXES];
#pragma unroll
    for (int axis = 0; axis < AXES; ++axis) {
        sides[axis] = shape[axis];
        wraps[axis] = around[axis];
        grid[axis] = (sides[axis] + tile[axis] - 1) / tile[axis];
    }
    place_t stride = 1;  // between points along the first axis
#pragma unroll
    for (int axis = 1; axis < AXES; ++axis) stride *= sides[axis];

    const unsigned long long size = counts[round % 3];
    // Of three counters one is read, one is added to, and one is made ready for the round after.
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[(round + 2) % 3] = 0;
    for (unsigned long long turn = blockIdx.x; turn < size; turn += gridDim.x) {
        const place_t map = active[turn] / tiles;
        place_t corner[AXES], rest = active[turn] % tiles;
#pragma unroll
        for (int axis = AXES - 1; axis >= 0; --axis) {
            corner[axis] = rest % grid[axis] * tile[axis];
            rest /= grid[axis];
        }
        REAL* values = found + map * points;

        // The tile and a layer around it: the other side of a periodic axis, or nothing.
        for (int cell = threadIdx.x; cell < CELLS; cell += THREADS) {
            int left = cell;
            place_t coordinates[AXES];
            bool outside = false;
#pragma unroll
            for (int axis = AXES - 1; axis >= 0; --axis) {
                place_t coordinate = corner[axis] + left % (tile[axis] + 2) - 1;
                left /= tile[axis] + 2;
                if (coordinate < 0 || coordinate >= sides[axis]) {
                    if (!wraps[axis] || coordinate > sides[axis]) outside = true;
                    coordinate += coordinate < 0 ? sides[axis] : -sides[axis];
                }
                coordinates[axis] = coordinate;
            }
            cells[cell] = outside ? INFINITE : *(volatile REAL*)(values + at(coordinates, sides));
        }

        // The points of this thread: one behind the other along the first axis.
        place_t here[AXES], there[AXES];
        int home = 0, column = threadIdx.x;
        bool inside = true, leaves;
#pragma unroll
        for (int axis = AXES - 1; axis > 0; --axis) {
            const int coordinate = column % tile[axis];
            column /= tile[axis];
            here[axis] = corner[axis] + coordinate;
            home += (coordinate + 1) * steps[axis];
            if (here[axis] >= sides[axis]) inside = false;
        }
        here[0] = corner[0] + column * PER_THREAD;
        home += (column * PER_THREAD + 1) * steps[0];
        const place_t first = here[0], place = at(here, sides);
        __syncthreads();
        REAL before[PER_THREAD], mine[PER_THREAD], entry[ENTRIES][PER_THREAD];
#pragma unroll
        for (int k = 0; k < PER_THREAD; ++k) {
            here[0] = first + k;
            const bool open = inside && here[0] < sides[0];
            before[k] = mine[k] = open ? cells[home + k * steps[0]] : INFINITE;
#pragma unroll
            for (int way = 0; way < ENTRIES; ++way) {
                REAL cost = INFINITE;
#if EDGES
                if (open && go(here, offsets[way], corner, sides, wraps, there, &leaves)) {
                    const int direction = way % DIRECTIONS;
                    cost = costs[direction * points + (way < DIRECTIONS ? place + k * stride : at(there, sides))];
                }
#else
                if (open) cost = costs[place + k * stride];
#endif
                entry[way][k] = cost >= 0 ? cost : INFINITE;
            }
        }

        bool lowered;
        do {
            lowered = false;
            // Down and up again: in one round a thread hands on what it has along all of its points.
#pragma unroll
            for (int pass = 0; pass < 2 * PER_THREAD; ++pass) {
                const int k = pass < PER_THREAD ? pass : 2 * PER_THREAD - 1 - pass;
                const int cell = home + k * steps[0];
                REAL best = INFINITE;
#pragma unroll
                for (int move = 0; move < MOVES; ++move) {
                    REAL trial = cells[cell + jumps[move]];
#if EDGES
                    trial += entry[move][k];
#endif
                    if (trial < best) best = trial;
                }
#if !EDGES
                best += entry[0][k];
#endif
                if (best < mine[k]) {
                    mine[k] = best;
                    cells[cell] = best;
                    lowered = true;
                }
            }
        } while (__syncthreads_or(lowered));

#pragma unroll
        for (int k = 0; k < PER_THREAD; ++k)
            if (mine[k] < before[k]) values[place + k * stride] = mine[k];
        __threadfence();
        __syncthreads();
        // In the first round all sources count as changed, because no tile has read them yet.
#pragma unroll
        for (int k = 0; k < PER_THREAD; ++k) {
            if (!(mine[k] < before[k] || (round == 0 && mine[k] < INFINITE))) continue;
            here[0] = first + k;
#pragma unroll
            for (int move = 0; move < MOVES; ++move) {
                if (!go(here, offsets[move], corner, sides, wraps, there, &leaves) || !leaves) continue;
                const place_t target = at(there, sides);
#if EDGES
                const place_t edge = move < DIRECTIONS ? place + k * stride : target;
                const REAL cost = costs[move % DIRECTIONS * points + edge];
#else
                const REAL cost = costs[target];
#endif
                if (!(cost >= 0) || !(mine[k] + cost < *(volatile REAL*)(values + target))) continue;
                place_t called = map;
#pragma unroll
                for (int axis = 0; axis < AXES; ++axis) called = called * grid[axis] + there[axis] / tile[axis];
                if (*(volatile int*)(marks + called) != round && atomicExch(marks + called, round) != round)
                    next[atomicAdd(counts + (round + 1) % 3, 1ULL)] = called;
            }
        }
    }
}
"""


@lru_cache(maxsize=64)
def tile_source(dtype: str, ndim: int, neighbourhood: str, edges: bool) -> str:
    """The kernel for lattices of ``ndim`` axes, with everything known in advance as constants."""
    sides = _SIDES[ndim]
    cells = [side + 2 for side in sides]
    strides = [math.prod(cells[axis + 1 :]) for axis in range(ndim)]
    ahead = forward_offsets(ndim, neighbourhood)
    moves = (*ahead, *(tuple(-step for step in offset) for offset in ahead))
    jumps = [sum(step * stride for step, stride in zip(move, strides, strict=True)) for move in moves]
    constants: dict[str, Any] = {
        "REAL": "float" if dtype == "float32" else "double",
        "INFINITE": "__int_as_float(0x7f800000)"
        if dtype == "float32"
        else "__longlong_as_double(0x7ff0000000000000LL)",
        "AXES": ndim,
        "THREADS": THREADS,
        "PER_THREAD": _PER_THREAD,
        "CELLS": math.prod(cells),
        "MOVES": len(moves),
        "DIRECTIONS": len(ahead),
        "ENTRIES": len(moves) if edges else 1,
        "EDGES": int(edges),
        "TILE": _braces(sides),
        "CELL_STEPS": _braces(strides),
        "JUMPS": _braces(jumps),
        "OFFSETS": _braces(_braces(move) for move in moves),
    }
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + _SOURCE


def _braces(values: Any) -> str:
    return "{" + ", ".join(str(value) for value in values) + "}"


class TilePlan(NamedTuple):
    """The shape of a lattice, and of a tile; the tiles along each axis, of which the last may be incomplete."""

    shape: tuple[int, ...]
    sides: tuple[int, ...]
    grid: tuple[int, ...]


def plan_tiles(shape: tuple[int, ...]) -> TilePlan:
    """Tiles of 1,024 points for up to three axes."""
    sides = _SIDES[len(shape)]
    return TilePlan(shape, sides, tuple(-(-length // side) for length, side in zip(shape, sides, strict=True)))


def tiles_of_sources(xp: Any, found: Any, plan: TilePlan) -> Any:
    """Indices of the tiles that have a source; maps follow each other along the first axis of ``found``."""
    named = xp.zeros(len(found) * math.prod(plan.grid), bool)
    rest = xp.flatnonzero(xp.isfinite(found))
    tile, scale = xp.zeros(rest.shape, np.int64), 1
    for length, side, count in zip(plan.shape[::-1], plan.sides[::-1], plan.grid[::-1], strict=True):
        tile += rest % length // side * scale
        rest, scale = rest // length, scale * count
    named[tile + rest * scale] = True
    return xp.flatnonzero(named)


def relax_by_tiles(
    xp: Any, launch: Callable[[int, tuple[Any, ...]], Any], costs: Any, found: Any, plan: TilePlan, wraps: Any
) -> int:
    """Lower ``found`` (maps, then the lattice) in place until nothing changes; returns the number of enqueued rounds.

    Parameters
    ----------
    xp : module
        CuPy, or a compatible module.
    launch : callable
        Runs the kernel of :func:`tile_source` with at most one block per tile, and its arguments.
    """
    tiles = len(found) * math.prod(plan.grid)
    sources = tiles_of_sources(xp, found, plan)
    lists = [xp.empty(tiles, np.int64), xp.empty(tiles, np.int64)]
    lists[0][: len(sources)] = sources
    counts = xp.asarray([len(sources), 0, 0], dtype=np.uint64)
    marks = xp.full(tiles, -1, dtype=np.int32)
    shape, around = xp.asarray(plan.shape, dtype=np.int64), xp.asarray(wraps, dtype=np.uint8)
    points, each = np.int64(math.prod(plan.shape)), np.int64(math.prod(plan.grid))
    turn = 0
    while int(counts[turn % 3]):
        for _ in range(_ROUNDS):
            now, then = lists[turn % 2], lists[(turn + 1) % 2]
            launch(tiles, (costs, found, now, then, counts, marks, np.int32(turn), points, each, shape, around))
            turn += 1
    return turn
