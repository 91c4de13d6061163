"""Shortest paths where steps cost: one pair by A*, whole maps by the engine."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from hpfracc._config import current_backend, get_settings
from hpfracc._optional import is_installed
from hpfracc.engine.execution.api import stencil_relax
from hpfracc.errors import InvalidInputError, NoPathError
from hpfracc.lattice._costs import Costs, like
from hpfracc.lattice._geometry import Array, Geometry
from hpfracc.lattice._paths import distance

__all__ = ["cost_map", "search_path", "step_cost"]

#: Points from which on the compiled search is loaded: below, Python is done before Numba is imported.
_MANY = 20_000


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
    start[sources] = 0.0 if prices is None else np.asarray(prices, costs.host.dtype)
    return stencil_relax(
        costs.array,
        like(start.reshape(geometry.shape), costs.array),
        neighbourhood=geometry.neighbourhood,
        periodic=geometry.wraps,
        edges=costs.edges,
        backend=backend,
    )


def check_open(costs: Costs, geometry: Geometry, place: int) -> None:
    """Refuse a point that is an obstacle."""
    if costs.closed is not None and costs.closed.reshape(-1)[place]:
        raise InvalidInputError(f"point {geometry.coordinates(place)} is an obstacle; choose one that is not")


def search_path(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[list[int], float]:
    """One cheapest path and its cost, or :class:`NoPathError`.

    A* with the number of steps left times the least cost for a lower bound.
    """
    for place in (a, b):
        check_open(costs, geometry, place)
    parents, cost = (_compiled if _compiles(geometry) else _in_python)(geometry, costs, a, b)
    if not math.isfinite(cost):
        raise NoPathError(
            f"no path from {geometry.coordinates(a)} to {geometry.coordinates(b)}: obstacles lie between them; "
            "distance_map() shows what can be reached"
        )
    found = [b]
    while found[-1] != a:
        found.append(int(parents[found[-1]]))
    return found[::-1], cost


def _compiles(geometry: Geometry) -> bool:
    settings = get_settings()
    wish = current_backend() or settings.force
    if wish is not None:
        return wish == "numba"
    return geometry.size >= _MANY and "numba" not in settings.disabled and is_installed("numba")


def _compiled(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[Array, float]:
    from hpfracc.lattice.compiled.astar import astar

    stack = costs.host if costs.edges else costs.host[None]
    parents, cost = astar(
        np.ascontiguousarray(stack.reshape(len(stack), -1), dtype=np.float64),
        costs.edges,
        np.asarray(geometry.shape, np.int64),
        np.asarray(geometry.strides, np.int64),
        np.asarray(geometry.wraps),
        np.asarray(geometry.forward, np.int64),
        costs.least * _SAFE,
        geometry.is_moore,
        a,
        b,
    )
    return parents, float(cost)


#: The lower bound is a product and the cost a sum: their roundings must not make it more than the cost.
_SAFE = 1.0 - 1e-12


def _in_python(geometry: Geometry, costs: Costs, a: int, b: int) -> tuple[dict[int, int], float]:
    reached, parents = {a: 0.0}, {a: a}
    least = costs.least * _SAFE
    heap = [(least * distance(geometry, a, b), 0.0, a)]
    while heap:
        _, cost, place = heapq.heappop(heap)
        if place == b:
            return parents, cost
        if cost > reached[place]:
            continue  # it was reached on a cheaper way since
        for there in geometry.neighbours(place):
            total = cost + step_cost(costs, geometry, place, there)
            if total < reached.get(there, math.inf):
                reached[there] = total
                parents[there] = place
                heapq.heappush(heap, (total + least * distance(geometry, there, b), total, there))
    return parents, math.inf
