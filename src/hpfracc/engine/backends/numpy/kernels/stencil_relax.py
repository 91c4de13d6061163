"""Shortest distances on a lattice in NumPy: SciPy's Dijkstra on a sparse matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hpfracc.engine.backends.base import Kernel
from hpfracc.engine.numerics.stencils import forward_offsets
from hpfracc.engine.primitives.stencil_relax import read_periodic

Array = np.ndarray[Any, Any]


def by_csgraph(
    costs: Array, start: Array, *, neighbourhood: str = "von_neumann", periodic: Any = False, edges: bool = False
) -> Array:
    """By a sparse matrix of all steps, and one more point with a step to every source at its start cost."""
    shape = costs.shape[1:] if edges else costs.shape
    points = int(np.prod(shape))
    rows = start.reshape(-1, points) if points else start.reshape(0, 0)
    result = np.full(rows.shape, np.inf, start.dtype)
    if not start.size:
        return result.reshape(start.shape)
    tails, heads, lengths = _steps(costs, shape, neighbourhood, read_periodic(periodic, len(shape)), edges)
    for row, prices in enumerate(rows):
        sources = np.flatnonzero(np.isfinite(prices))
        if not len(sources):
            continue
        # Dijkstra's lengths must not be negative: start costs are relative to the lowest.
        lowest = prices[sources].min()
        matrix = sparse.csr_array(
            (
                np.concatenate([lengths, (prices[sources] - lowest).astype(np.float64)]),
                (np.concatenate([tails, np.full(len(sources), points)]), np.concatenate([heads, sources])),
            ),
            shape=(points + 1, points + 1),
        )
        result[row] = (csgraph.dijkstra(matrix, indices=points)[:points] + lowest).astype(start.dtype)
    return result.reshape(start.shape)


def _steps(
    costs: Array, shape: tuple[int, ...], neighbourhood: str, wraps: tuple[bool, ...], edges: bool
) -> tuple[Array, Array, Array]:
    """Tails, heads and lengths of all open steps; of parallel ones the shortest."""
    places = np.arange(int(np.prod(shape))).reshape(shape)
    parts = []
    for place, offset in enumerate(forward_offsets(len(shape), neighbourhood)):
        there = np.roll(places, [-step for step in offset], range(len(shape)))
        inside = np.ones(shape, bool)
        for axis, (step, wrap) in enumerate(zip(offset, wraps, strict=True)):
            if step and not wrap:
                edge = -1 if step > 0 else 0
                inside[(slice(None),) * axis + (edge,)] = False
        u, v = places[inside], there[inside]
        out, back = (costs[place].reshape(-1)[u],) * 2 if edges else (costs.reshape(-1)[v], costs.reshape(-1)[u])
        for tail, head, length in ((u, v, out), (v, u, back)):
            opened = (length >= 0) & np.isfinite(length)
            parts.append((tail[opened], head[opened], length[opened].astype(np.float64)))
    tails, heads, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
    if min(shape) <= 2 and any(wraps):
        # A sparse matrix would add parallel steps, and both steps around a periodic side of two are parallel.
        order = np.lexsort((lengths, heads, tails))
        tails, heads, lengths = tails[order], heads[order], lengths[order]
        first = np.ones(len(tails), bool)
        first[1:] = (tails[1:] != tails[:-1]) | (heads[1:] != heads[:-1])
        tails, heads, lengths = tails[first], heads[first], lengths[first]
    return tails, heads, lengths


KERNELS: dict[str, Kernel] = {"csgraph": Kernel(by_csgraph)}
