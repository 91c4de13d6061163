"""Shortest paths with costs: single ones by A*, bidirectional search or SciPy, maps by the engine, all paths lazily."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._interrupts import run_shielded
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.api import stencil_relax
from hpfracc.engine.numerics.stencils import bucket_ring
from hpfracc.engine.selection.request import numba_wish, read_preference
from hpfracc.errors import BackendUnavailableError, InvalidInputError, NoPathError, ShapeError
from hpfracc.lattice.costs import Costs, like
from hpfracc.lattice.geometry import Array, Geometry
from hpfracc.lattice.graphs import to_csr
from hpfracc.lattice.paths import distance

#: The name of a search for one path in ``config(pin=..., never=...)``.
_OPERATION = "shortest_path"
#: Smallest lattice for the compiled search. Below, SciPy finishes before Numba is imported. The size alone decides:
#: both searches find a cheapest path, but not the same one of several, and a path must not depend on earlier calls.
_MIN_COMPILED_POINTS = 20_000
#: Ratio of the minimum to the mean cost from which A* is faster than bidirectional search. With costs between 1 and 2
#: both take the same time (``benchmarks/lattice.py``).
MIN_ASTAR_RATIO = 2 / 3

#: Relative tolerance for equal costs: paths add the same costs in different orders.
_RTOL = 1e-9


def step_cost(costs: Costs, geometry: Geometry, u: int, v: int) -> float:
    """Cost of the step from point u to its neighbour v."""
    if not costs.edges:
        return float(costs.host.reshape(-1)[v])
    table = costs.host.reshape(len(costs.host), -1)
    here, there = geometry.coordinates(u), geometry.coordinates(v)
    best = math.inf
    for direction, offset in enumerate(geometry.forward):
        for a, b, index in ((here, there, u), (there, here, v)):
            if all(
                (x + o - y) % side == 0 if wrap else x + o == y
                for x, o, y, side, wrap in zip(a, offset, b, geometry.shape, geometry.wraps, strict=True)
            ):
                best = min(best, float(table[direction, index]))
    return best


def cost_map(geometry: Geometry, costs: Costs, sources: list[int], prices: Any, backend: Any) -> Any:
    """Cost of the cheapest path from any source to every point, as an array of the weights' library.

    Infinite where a point cannot be reached.
    """
    paid = np.zeros(len(sources)) if prices is None else np.asarray(to_host(prices), np.float64)
    if paid.shape != (len(sources),):
        raise ShapeError(f"prices have shape {paid.shape} for {len(sources)} sources; give one price for each source")
    if np.isnan(paid).any() or (paid == -math.inf).any():
        raise InvalidInputError("prices contain nan or minus infinity; use numbers (infinity: not a source)")
    start = np.full(geometry.size, math.inf, costs.host.dtype)
    np.minimum.at(start, sources, paid.astype(start.dtype))  # the lower price of a repeated source
    return _relax(geometry, costs, start, backend)


def cost_maps(geometry: Geometry, costs: Costs, sources: list[int], backend: Any) -> Any:
    """:func:`cost_map` of each source separately, stacked along the first axis."""
    start = np.where(np.arange(geometry.size) == np.array(sources)[:, None], 0.0, math.inf)
    return _relax(geometry, costs, start.astype(costs.host.dtype), backend)


def _relax(geometry: Geometry, costs: Costs, start: Array, backend: Any) -> Any:
    """Cheapest costs of all points, from those of points to start from; rows of ``start`` are separate."""
    first = like(start.reshape(*start.shape[:-1], *geometry.shape), costs.array)
    options = {"neighbourhood": geometry.neighbourhood, "periodic": geometry.wraps, "edges": costs.edges}
    return stencil_relax(costs.array, first, **options, backend=backend)


def check_open(costs: Costs | None, geometry: Geometry, *indices: int) -> None:
    """Raise an error if a point is an obstacle."""
    for index in indices:
        if costs is not None and costs.closed is not None and costs.closed.reshape(-1)[index]:
            raise InvalidInputError(f"point {geometry.coordinates(index)} is an obstacle; choose another point")


def _no_path(geometry: Geometry, a: int, b: int) -> NoPathError:
    """The error for two points that no path connects."""
    return NoPathError(
        f"no path from {geometry.coordinates(a)} to {geometry.coordinates(b)}: obstacles lie between them; "
        "distance_map() shows which points can be reached"
    )


def search_path(geometry: Geometry, costs: Costs, a: int, b: int, method: str | None = None) -> tuple[list[int], float]:
    """One cheapest path and its cost; raises :class:`NoPathError` if there is none.

    A* bounds the remaining cost from below by the remaining steps times the minimum cost. Where that bound is weak, the
    search is bidirectional. ``method`` selects one of :data:`METHODS` explicitly.
    """
    check_open(costs, geometry, a, b)
    if method is None:
        method = "astar" if costs.minimum >= MIN_ASTAR_RATIO * costs.mean else "bidirectional"
    runs_on = "a search for one path runs on 'numpy' and 'numba'"
    wish = numba_wish(_OPERATION, read_preference(_OPERATION), runs_on)  # NumPy stands for SciPy's search
    absent = None if method in _ready else registry.unavailable("numba")
    if wish == "numba" and absent is not None:
        raise BackendUnavailableError(
            f"{_OPERATION}: 'numba' is requested, and cannot serve this call ({absent}); use another backend or 'auto'"
        )
    if wish == "numba" or (wish == "auto" and geometry.size >= _MIN_COMPILED_POINTS and absent is None):
        search = partial(_compiled, geometry, costs, a, b, method)
        # The first search compiles, and an interrupt then would leave the compiler locked.
        found = search() if method in _ready else run_shielded(search)
        _ready.add(method)
    else:
        found = _by_dijkstra(geometry, costs, a, b)
    if found is None:
        raise _no_path(geometry, a, b)
    return found


def _compiled(geometry: Geometry, costs: Costs, a: int, b: int, method: str) -> tuple[list[int], float] | None:
    from hpfracc.lattice.compiled.searches import astar, bidirectional, make_steps, trace_back

    steps, ends, unit = make_steps(geometry), (np.uint64(a), np.uint64(b)), 1.0
    stack = costs.host if costs.edges else costs.host[None]
    rows = np.ascontiguousarray(stack.reshape(len(stack), -1), dtype=np.float64)
    if method == "bidirectional":
        taken, _, meeting, cost = bidirectional(
            rows, costs.edges, steps, *bucket_ring(costs.mean, costs.maximum), *ends
        )
        places = [(taken[:, 0], meeting), (taken[:, 1], meeting)]
    else:
        if costs.minimum == costs.maximum and costs.minimum not in (0.0, 1.0):
            # Count steps instead: sums of a cost such as 0.1 are rounded, and equally long paths would compare unequal.
            unit, rows = costs.minimum, rows / costs.minimum
        taken, found = astar(rows, costs.edges, steps, costs.minimum / unit, geometry.is_moore, *ends)
        cost, places = found[b], [(taken, b)]
    if not math.isfinite(cost):
        return None
    before, *behind = (trace_back(each, np.uint64(place), steps).tolist() for each, place in places)
    return before[::-1] + (behind[0][1:] if behind else []), float(cost) * unit


METHODS = ("astar", "bidirectional")
#: Methods that are compiled already.
_ready: set[str] = set()


def _by_dijkstra(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[list[int], float] | None:
    from scipy.sparse import csgraph

    found, before = csgraph.dijkstra(to_csr(geometry, costs), indices=a, return_predecessors=True)
    if not math.isfinite(found[b]):
        return None
    path = [b]
    while path[-1] != a:
        path.append(int(before[path[-1]]))
    return path[::-1], float(found[b])


# Lazy enumeration of all shortest paths, or of all paths up to a length.


def cheapest_paths(geometry: Geometry, costs: Costs | None, a: int, b: int) -> Iterator[list[int]]:
    """Every shortest path from a to b."""
    if costs is None:

        def nearer(path: list[int], index: int, visited: set[int]) -> bool:
            return distance(geometry, index, b) == distance(geometry, path[-1], b) - 1

        yield from _descend(geometry, a, b, nearer)
        return
    check_open(costs, geometry, a, b)
    remaining = to_host(cost_map(geometry, costs, [b], None, None)).astype(np.float64).reshape(-1)
    if not costs.edges:
        # The map has the cost from b to each point, which includes entering the point and not b. Reverse that.
        entry = costs.host.reshape(-1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            remaining = remaining + entry[b] - entry
    if not math.isfinite(remaining[a]):
        raise _no_path(geometry, a, b)
    slack = _RTOL * max(1.0, abs(float(remaining[a])))

    positive = costs.minimum > 0

    def on_shortest(path: list[int], index: int, visited: set[int]) -> bool:
        u = path[-1]
        near = bool(step_cost(costs, geometry, u, index) + remaining[index] <= remaining[u] + slack)
        # With steps of cost 0 a shortest path could cycle, so each point is visited once.
        return near and (positive or index not in visited)

    yield from _descend(geometry, a, b, on_shortest)


def bounded_paths(geometry: Geometry, costs: Costs | None, a: int, b: int, max_steps: int) -> Iterator[list[int]]:
    """Every path from a to b of at most ``max_steps`` steps that visits no point twice, regardless of its cost."""
    check_open(costs, geometry, a, b)

    def in_reach(path: list[int], index: int, visited: set[int]) -> bool:
        # The distance without obstacles is a lower bound of the steps left.
        if index in visited or len(path) + distance(geometry, index, b) > max_steps:
            return False
        return costs is None or math.isfinite(step_cost(costs, geometry, path[-1], index))

    yield from _descend(geometry, a, b, in_reach)


def _descend(
    geometry: Geometry, a: int, b: int, may_step: Callable[[list[int], int, set[int]], bool]
) -> Iterator[list[int]]:
    """Depth-first search from a to b; ``may_step(path, next point, visited points)`` prunes it."""
    path, visited = [a], {a}
    if a == b:
        yield [a]
        return
    branches = [iter(geometry.neighbours(a))]
    while branches:
        index = next(branches[-1], -1)
        if index < 0:
            branches.pop()
            visited.discard(path.pop())
        elif may_step(path, index, visited):
            if index == b:
                yield [*path, b]
            else:
                path.append(index)
                visited.add(index)
                branches.append(iter(geometry.neighbours(index)))
