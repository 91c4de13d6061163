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
        yield from _descend(
            geometry, a, b, lambda u, v: distance(geometry, v, b) == distance(geometry, u, b) - 1, simple=True
        )
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

    def on_the_way(u: int, v: int) -> bool:
        return bool(step_cost(costs, geometry, u, v) + left[v] <= left[u] + slack)

    # With steps that cost nothing a shortest path might go round in circles: each point is visited once.
    yield from _descend(geometry, a, b, on_the_way, simple=costs.least > 0)


def _descend(
    geometry: Geometry, a: int, b: int, on_the_way: Callable[[int, int], bool], *, simple: bool
) -> Iterator[list[int]]:
    """Depth first along steps that lose no way; ``simple``: no such step can lead back."""
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
        elif on_the_way(way[-1], place) and (simple or place not in visited):
            if place == b:
                yield [*way, b]
            else:
                way.append(place)
                visited.add(place)
                branches.append(iter(geometry.neighbours(place)))


def bounded_paths(geometry: Geometry, costs: Costs | None, a: int, b: int, most: int) -> Iterator[list[int]]:
    """Every path of at most so many steps that visits no point twice, whatever its steps cost."""
    if costs is not None:
        for place in (a, b):
            check_open(costs, geometry, place)
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
            continue
        # Not worth following if even with nothing in the way it were too far.
        if place in visited or len(way) + distance(geometry, place, b) > most:
            continue
        if costs is not None and not math.isfinite(step_cost(costs, geometry, way[-1], place)):
            continue
        if place == b:
            yield [*way, b]
        else:
            way.append(place)
            visited.add(place)
            branches.append(iter(geometry.neighbours(place)))
