"""Shortest paths where steps cost: one pair by A* or from both ends, whole maps by the engine."""

from __future__ import annotations

import heapq
import math
from functools import partial
from typing import Any

import numpy as np

from hpfracc._config import current_backend, get_settings
from hpfracc._optional import is_installed
from hpfracc._shielded import run_shielded
from hpfracc.engine.execution.api import stencil_relax
from hpfracc.engine.numerics.stencils import bucket_ring
from hpfracc.errors import InvalidInputError, NoPathError, ShapeError
from hpfracc.lattice._costs import Costs, like, to_host
from hpfracc.lattice._geometry import Array, Geometry
from hpfracc.lattice._paths import distance

__all__ = ["METHODS", "check_open", "cost_map", "cost_maps", "search_path", "step_cost"]

#: Points from which on the compiled search is loaded: below, Python is done before Numba is imported.
_MANY = 20_000
#: Share of the mean cost that the least one must have for A* to be the quicker search: with costs of 1 to 2 both take
#: the same time (``benchmarks/lattice.py``).
_STRONG = 2 / 3


def step_cost(costs: Costs, geometry: Geometry, u: int, v: int) -> float:
    """What the step from one point to its neighbour costs."""
    if not costs.edges:
        return float(costs.host.reshape(-1)[v])
    table = costs.host.reshape(len(costs.host), -1)
    here, there = geometry.coordinates(u), geometry.coordinates(v)
    best = math.inf
    for direction, offset in enumerate(geometry.forward):
        for a, b, place in ((here, there, u), (there, here, v)):
            if all(
                (x + o - y) % side == 0 if wrap else x + o == y
                for x, o, y, side, wrap in zip(a, offset, b, geometry.shape, geometry.wraps, strict=True)
            ):
                best = min(best, float(table[direction, place]))
    return best


def cost_map(geometry: Geometry, costs: Costs, sources: list[int], prices: Any, backend: Any) -> Any:
    """Cost from the cheapest source to every point: an array of the weights' own library, infinite where none leads."""
    start = np.full(geometry.size, math.inf, costs.host.dtype)
    paid = np.zeros(len(sources)) if prices is None else np.asarray(to_host(prices), np.float64)
    if paid.shape != (len(sources),):
        raise ShapeError(f"prices of shape {paid.shape} for {len(sources)} sources; give one for each")
    if np.isnan(paid).any() or (paid == -math.inf).any():
        raise InvalidInputError("prices that are nan or minus infinity; beginning costs a number (infinity: not there)")
    np.minimum.at(start, sources, paid.astype(start.dtype))  # of a source that comes twice the lower price counts
    return _relax(geometry, costs, start.reshape(geometry.shape), backend)


def cost_maps(geometry: Geometry, costs: Costs, sources: list[int], backend: Any) -> Any:
    """The same from each source alone, one map behind the other."""
    start = np.full((len(sources), geometry.size), math.inf, costs.host.dtype)
    start[np.arange(len(sources)), sources] = 0.0
    return _relax(geometry, costs, start.reshape(-1, *geometry.shape), backend)


def _relax(geometry: Geometry, costs: Costs, start: Array, backend: Any) -> Any:
    return stencil_relax(
        costs.array,
        like(start, costs.array),
        neighbourhood=geometry.neighbourhood,
        periodic=geometry.wraps,
        edges=costs.edges,
        backend=backend,
    )


def check_open(costs: Costs, geometry: Geometry, place: int) -> None:
    """Refuse a point that is an obstacle."""
    if costs.closed is not None and costs.closed.reshape(-1)[place]:
        raise InvalidInputError(f"point {geometry.coordinates(place)} is an obstacle; choose one that is not")


def search_path(geometry: Geometry, costs: Costs, a: int, b: int, method: str | None = None) -> tuple[list[int], float]:
    """One cheapest path and its cost, or :class:`NoPathError`.

    By A*, with the number of steps left times the least cost for a lower bound, or where that bound is weak from both
    ends at once; ``method`` names one of them.
    """
    for place in (a, b):
        check_open(costs, geometry, place)
    if _compiles(geometry):
        if method is None:
            method = "astar" if costs.least >= _STRONG * costs.mean else "bidirectional"
        search = partial(_COMPILED[method], geometry, costs, a, b)
        # The first one compiles, and an interrupt would leave the compiler locked.
        found = search() if method in _ready else run_shielded(search)
        _ready.add(method)
    else:
        found = _in_python(geometry, costs, a, b)
    if found is None:
        raise NoPathError(
            f"no path from {geometry.coordinates(a)} to {geometry.coordinates(b)}: obstacles lie between them; "
            "distance_map() shows what can be reached"
        )
    return found


def _compiles(geometry: Geometry) -> bool:
    settings = get_settings()
    wish = current_backend() or settings.force
    if wish is not None:
        return wish == "numba"
    return geometry.size >= _MANY and "numba" not in settings.disabled and is_installed("numba")


def _rows(costs: Costs) -> Array:
    """One row of points, or one of edges for each direction, as the compiled searches take them."""
    stack = costs.host if costs.edges else costs.host[None]
    return np.ascontiguousarray(stack.reshape(len(stack), -1), dtype=np.float64)


def _by_astar(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[list[int], float] | None:
    from hpfracc.lattice.compiled.astar import astar
    from hpfracc.lattice.compiled.steps import make_steps, way_back

    steps = make_steps(geometry)
    rows, least, unit = _rows(costs), costs.least, 1.0
    if costs.least == costs.greatest and costs.least not in (0.0, 1.0):
        # Steps are counted: sums of a cost such as 0.1 differ in their last digits, and equal ways would look unequal.
        rows, least, unit = rows / least, 1.0, least
    taken, found = astar(rows, costs.edges, steps, least, geometry.is_moore, np.uint64(a), np.uint64(b))
    if not math.isfinite(found[b]):
        return None
    return way_back(taken, np.uint64(b), steps)[::-1].tolist(), float(found[b]) * unit


def _from_both_ends(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[list[int], float] | None:
    from hpfracc.lattice.compiled.bidirectional import bidirectional
    from hpfracc.lattice.compiled.steps import make_steps, way_back

    steps, (width, buckets) = make_steps(geometry), bucket_ring(costs.mean, costs.greatest)
    taken, _, meeting, cost = bidirectional(
        _rows(costs), costs.edges, steps, width, buckets, np.uint64(a), np.uint64(b)
    )
    if not math.isfinite(cost):
        return None
    before, behind = (way_back(taken[:, side], np.uint64(meeting), steps) for side in (0, 1))
    return before[::-1].tolist() + behind[1:].tolist(), float(cost)


_COMPILED = {"astar": _by_astar, "bidirectional": _from_both_ends}
METHODS = tuple(_COMPILED)
#: Those that are compiled.
_ready: set[str] = set()


def _in_python(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[list[int], float] | None:
    reached, parents = {a: 0.0}, {a: a}
    heap = [(0.0, -0.0, a)]  # of equal bounds the one that has come farther first
    while heap:
        _, cost, place = heapq.heappop(heap)
        cost = -cost
        if place == b:
            found = [b]
            while found[-1] != a:
                found.append(parents[found[-1]])
            return found[::-1], cost
        if cost > reached[place]:
            continue  # it was reached on a cheaper way since
        for there in geometry.neighbours(place):
            total = cost + step_cost(costs, geometry, place, there)
            if total < reached.get(there, math.inf):
                reached[there] = total
                parents[there] = place
                heapq.heappush(heap, (total + costs.least * distance(geometry, there, b), -total, there))
    return None
