"""All shortest paths, or all paths up to a length, one after the other: never a list that explodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from hpfracc.errors import NoPathError
from hpfracc.lattice._costs import Costs, to_host
from hpfracc.lattice._geometry import Geometry
from hpfracc.lattice._paths import distance
from hpfracc.lattice._search import check_open, cost_map, step_cost

__all__ = ["bounded_paths", "cheapest_paths"]

#: Costs are sums in different orders on different ways: equal to so many digits counts as equal.
_DIGITS = 1e-9


def cheapest_paths(geometry: Geometry, costs: Costs | None, a: int, b: int) -> Iterator[list[int]]:
    """Every shortest path, in the order of its points."""
    if costs is None:

        def nearer(way: list[int], place: int, visited: set[int]) -> bool:
            return distance(geometry, place, b) == distance(geometry, way[-1], b) - 1

        yield from _descend(geometry, a, b, nearer)
        return
    for place in (a, b):
        check_open(costs, geometry, place)
    left = to_host(cost_map(geometry, costs, [b], None, None)).astype(np.float64).reshape(-1)
    if not costs.edges:
        # The map counts what entering costs on the way out from b; on the way to it b is entered, and u is not.
        entry = costs.host.reshape(-1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            left = left + entry[b] - entry
    if not math.isfinite(left[a]):
        raise NoPathError(
            f"no path from {geometry.coordinates(a)} to {geometry.coordinates(b)}: obstacles lie between them"
        )
    slack = _DIGITS * max(1.0, abs(float(left[a])))

    positive = costs.least > 0

    def on_the_way(way: list[int], place: int, visited: set[int]) -> bool:
        # With steps that cost nothing a shortest path might go round in circles: each point is visited once.
        u = way[-1]
        near = bool(step_cost(costs, geometry, u, place) + left[place] <= left[u] + slack)
        return near and (positive or place not in visited)

    yield from _descend(geometry, a, b, on_the_way)


def bounded_paths(geometry: Geometry, costs: Costs | None, a: int, b: int, most: int) -> Iterator[list[int]]:
    """Every path of at most so many steps that visits no point twice, whatever its steps cost."""
    if costs is not None:
        for place in (a, b):
            check_open(costs, geometry, place)

    def in_reach(way: list[int], place: int, visited: set[int]) -> bool:
        # Not worth following if even with nothing in the way it were too far.
        if place in visited or len(way) + distance(geometry, place, b) > most:
            return False
        return costs is None or math.isfinite(step_cost(costs, geometry, way[-1], place))

    yield from _descend(geometry, a, b, in_reach)


def _descend(
    geometry: Geometry, a: int, b: int, may_step: Callable[[list[int], int, set[int]], bool]
) -> Iterator[list[int]]:
    """Depth first from a to b; ``may_step`` is told the way so far, the next point and the points of the way."""
    way, visited = [a], {a}
    if a == b:
        yield [a]
        return
    branches = [iter(geometry.neighbours(a))]
    while branches:
        place = next(branches[-1], -1)
        if place < 0:
            branches.pop()
            visited.discard(way.pop())
        elif may_step(way, place, visited):
            if place == b:
                yield [*way, b]
            else:
                way.append(place)
                visited.add(place)
                branches.append(iter(geometry.neighbours(place)))
