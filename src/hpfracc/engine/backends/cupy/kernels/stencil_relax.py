"""Shortest distances on a lattice in CuPy: rounds over the points that changed in the round before, or over tiles.

By points, one thread processes a point of the frontier and updates its neighbours; improved ones form the next
frontier. By tiles, a block updates 1,024 points until nothing in them changes (``tiles.py``). Counters stay on the
device: the host enqueues rounds and checks only from time to time whether the search is done.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.backends.cupy.tiles import THREADS, plan_tiles, relax_by_tiles, tile_source
from hpfracc.engine.numerics.stencils import forward_offsets
from hpfracc.engine.primitives.stencil_relax import read_periodic

__all__ = ["KERNELS"]

#: Rounds between two checks; rounds enqueued after the last useful one do nothing.
_ROUNDS = 64
#: Blocks for each processor of the GPU; longer frontiers are processed in strides.
_BLOCKS = 8

_SOURCE = r"""
typedef long long place_t;

__device__ __forceinline__ bool lower(REAL* address, REAL value) {
    BITS* bits = (BITS*)address;
    BITS seen = *bits;
    while (value < FROM_BITS(seen)) {
        BITS before = atomicCAS(bits, seen, (BITS)TO_BITS(value));
        if (before == seen) return true;
        seen = before;
    }
    return false;
}

extern "C" __global__ void expand(
    const REAL* __restrict__ costs, REAL* found, const place_t* __restrict__ frontier, place_t* next,
    unsigned long long* counts, int* marks, const int round, const place_t points, const int axes,
    const int directions, const place_t* __restrict__ sides, const signed char* __restrict__ offsets,
    const unsigned char* __restrict__ wraps, const int edges)
{
    const unsigned long long size = counts[round % 3];
    const unsigned long long width = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long turn = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    // Of three counters one is read, one is added to, and one is made ready for the round after.
    if (turn == 0) counts[(round + 2) % 3] = 0;
    for (; turn < size; turn += width) {
        const place_t whole = frontier[turn];
        const place_t here = whole % points;
        const REAL origin = *(volatile REAL*)(found + whole);
        for (int move = 0; move < 2 * directions; ++move) {
            const bool ahead = move < directions;
            const int direction = ahead ? move : move - directions;
            place_t rest = here, stride = 1, there = 0;
            bool outside = false;
            for (int axis = axes - 1; axis >= 0; --axis) {
                const place_t side = sides[axis];
                const int step = offsets[direction * axes + axis];
                place_t coordinate = rest % side + (ahead ? step : -step);
                rest /= side;
                if (coordinate < 0 || coordinate >= side) {
                    if (!wraps[axis]) { outside = true; break; }
                    coordinate += coordinate < 0 ? side : -side;
                }
                there += coordinate * stride;
                stride *= side;
            }
            if (outside) continue;
            const REAL cost = edges ? costs[direction * points + (ahead ? here : there)] : costs[there];
            if (!(cost >= 0)) continue;
            const place_t target = whole - here + there;
            if (lower(found + target, origin + cost) && atomicExch(marks + target, round) != round)
                next[atomicAdd(counts + (round + 1) % 3, 1ULL)] = target;
        }
    }
}
"""
_TYPES = {
    "float32": ("float", "unsigned int", "__uint_as_float", "__float_as_uint"),
    "float64": ("double", "unsigned long long", "__longlong_as_double", "__double_as_longlong"),
}


@lru_cache(maxsize=2)
def _kernel(dtype: str) -> Any:
    source = _SOURCE
    # The longer names first: they contain the shorter ones.
    for name, value in zip(("REAL", "FROM_BITS", "TO_BITS", "BITS"), _ordered(dtype), strict=True):
        source = source.replace(name, value)
    return cupy.RawKernel(source, "expand")


def _most_blocks() -> int:
    return _BLOCKS * int(cupy.cuda.Device().attributes["MultiProcessorCount"])


def _ordered(dtype: str) -> tuple[str, str, str, str]:
    real, bits, decode, encode = _TYPES[dtype]
    return real, decode, encode, bits


def by_frontier(
    costs: Any, start: Any, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Any:
    """Process the points that changed until none does."""
    found = cupy.where(cupy.isfinite(start), start, np.inf).astype(start.dtype, order="C")
    if not start.size:
        return found
    shape = costs.shape[1:] if edges else costs.shape
    offsets = forward_offsets(len(shape), neighbourhood)
    costs = cupy.ascontiguousarray(costs)
    frontier = cupy.empty(found.size, np.int64)
    sources = cupy.flatnonzero(cupy.isfinite(found))
    frontier[: len(sources)] = sources
    counts = cupy.asarray([len(sources), 0, 0], np.uint64)
    kernel = _kernel(str(start.dtype))
    blocks = min(_most_blocks(), -(-found.size // THREADS))
    lists = [frontier, cupy.empty_like(frontier)]
    constant = (
        np.int64(costs.size // (len(offsets) if edges else 1)),
        np.int32(len(shape)),
        np.int32(len(offsets)),
        cupy.asarray(shape, np.int64),
        cupy.asarray(offsets, np.int8),
        cupy.asarray(read_periodic(periodic, len(shape)), np.uint8),
        np.int32(edges),
    )
    marks = cupy.full(found.size, -1, np.int32)
    turn = 0
    while True:
        for _ in range(_ROUNDS):
            now, then = lists[turn % 2], lists[(turn + 1) % 2]
            kernel((blocks,), (THREADS,), (costs, found, now, then, counts, marks, np.int32(turn), *constant))
            turn += 1
        if not int(counts[turn % 3]):
            return found


@lru_cache(maxsize=32)
def _tile_kernel(dtype: str, ndim: int, neighbourhood: str, edges: bool) -> Any:
    return cupy.RawKernel(tile_source(dtype, ndim, neighbourhood, edges), "relax_tiles")


def by_tiles(
    costs: Any, start: Any, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Any:
    """Process the tiles in which a point can be improved until there are none; for up to three axes."""
    found = cupy.where(cupy.isfinite(start), start, np.inf).astype(start.dtype, order="C")
    if not start.size:
        return found
    shape = costs.shape[1:] if edges else costs.shape
    kernel = _tile_kernel(str(start.dtype), len(shape), neighbourhood, bool(edges))
    most = _most_blocks()

    def launch(tiles: int, arguments: tuple[Any, ...]) -> None:
        kernel((min(tiles, most),), (THREADS,), arguments)

    maps = found.reshape(-1, *shape)
    relax_by_tiles(
        cupy, launch, cupy.ascontiguousarray(costs), maps, plan_tiles(shape), read_periodic(periodic, len(shape))
    )
    return found


KERNELS: dict[str, Kernel] = {"tiles": Kernel(by_tiles), "frontier": Kernel(by_frontier)}
