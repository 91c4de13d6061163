"""Lazy enumeration of all shortest paths, or of all paths up to a length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from hpfracc._arrays import to_host
from hpfracc.lattice.costs import Costs
from hpfracc.lattice.geometry import Geometry
from hpfracc.lattice.paths import distance
from hpfracc.lattice.search import check_open, cost_map, no_path, step_cost

__all__ = ["bounded_paths", "cheapest_paths"]

#: Relative tolerance for equal costs: paths add the same costs in different orders.
_RTOL = 1e-9


def cheapest_paths(geometry: Geometry, costs: Costs | None, a: int, b: int) -> Iterator[list[int]]:
    """Every shortest path from a to b."""
    if costs is None:

        def nearer(path: list[int], index: int, visited: set[int]) -> bool:
            return distance(geometry, index, b) == distance(geometry, path[-1], b) - 1

        yield from _descend(geometry, a, b, nearer)
        return
    for index in (a, b):
        check_open(costs, geometry, index)
    remaining = to_host(cost_map(geometry, costs, [b], None, None)).astype(np.float64).reshape(-1)
    if not costs.edges:
        # The map has the cost from b to each point, which includes entering the point and not b. Reverse that.
        entry = costs.host.reshape(-1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            remaining = remaining + entry[b] - entry
    if not math.isfinite(remaining[a]):
        raise no_path(geometry, a, b)
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
    if costs is not None:
        for index in (a, b):
            check_open(costs, geometry, index)

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
