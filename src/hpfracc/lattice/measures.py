"""Closed-form measures of a lattice without costs: edges, degrees, distances, clustering."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np

from hpfracc.lattice.geometry import Array, Geometry

__all__ = [
    "closeness",
    "count_edges",
    "degrees",
    "diameter",
    "eccentricities",
    "is_bipartite",
    "mean_clustering",
    "mean_distance",
    "radius",
]


def _axis_degrees(side: int, wraps: bool) -> Array:
    """Number of neighbours along one axis, for each coordinate."""
    degrees = np.full(side, 2, np.int64)
    if not wraps:
        degrees[0] -= 1
        degrees[-1] -= 1
    return degrees


def count_edges(geometry: Geometry) -> int:
    """Number of edges."""
    steps = [side if wraps else side - 1 for side, wraps in zip(geometry.shape, geometry.wraps, strict=True)]
    if geometry.is_moore:
        # Ordered pairs of points that are equal or adjacent along every axis, minus the points themselves.
        pairs = math.prod(side + 2 * step for side, step in zip(geometry.shape, steps, strict=True))
        return (pairs - geometry.size) // 2
    return sum(geometry.size // side * step for side, step in zip(geometry.shape, steps, strict=True))


def degrees(geometry: Geometry) -> Array:
    """Number of neighbours of every point, in the shape of the lattice."""
    total = np.zeros((), np.int64)
    for side, wraps in zip(geometry.shape, geometry.wraps, strict=True):
        along = _axis_degrees(side, wraps)
        total = (total[..., None] + 1) * (along + 1) - 1 if geometry.is_moore else total[..., None] + along
    return total


def eccentricities(geometry: Geometry) -> Array:
    """Distance from every point to the farthest one."""
    total = np.zeros((), np.int64)
    for side, wraps in zip(geometry.shape, geometry.wraps, strict=True):
        here = np.arange(side)
        along = np.full(side, side // 2) if wraps else np.maximum(here, side - 1 - here)
        total = np.maximum(total[..., None], along) if geometry.is_moore else total[..., None] + along
    return total


def diameter(geometry: Geometry) -> int:
    """Largest distance between two points."""
    sides = [side // 2 if wraps else side - 1 for side, wraps in zip(geometry.shape, geometry.wraps, strict=True)]
    return max(sides) if geometry.is_moore else sum(sides)


def radius(geometry: Geometry) -> int:
    """Smallest eccentricity."""
    sides = [side // 2 for side in geometry.shape]
    return max(sides) if geometry.is_moore else sum(sides)


def is_bipartite(geometry: Geometry) -> bool:
    """Whether the graph is two-colourable: no odd ring, and no triangle of a diagonal and two straight steps."""
    odd = any(wraps and side % 2 for side, wraps in zip(geometry.shape, geometry.wraps, strict=True))
    wide = sum(side > 1 for side in geometry.shape)
    return not odd and not (geometry.is_moore and wide > 1)


def _axis_sums(side: int, wraps: bool) -> Array:
    """Sum of the distances to all others along one axis, for each coordinate."""
    here = np.arange(side)
    if wraps:
        return np.full(side, (side // 2) * ((side + 1) // 2))
    return np.asarray((here * (here + 1) + (side - 1 - here) * (side - here)) // 2)


def _within(side: int, wraps: bool, reach: int) -> Array:
    """Number of coordinates within ``reach``, for each coordinate."""
    here = np.arange(side)
    if wraps:
        return np.full(side, min(side, 2 * reach + 1))
    return np.minimum(here, reach) + np.minimum(side - 1 - here, reach) + 1


def distance_sums(geometry: Geometry) -> Array:
    """Sum of the distances from every point to all others."""
    axes = list(zip(geometry.shape, geometry.wraps, strict=True))
    if not geometry.is_moore:
        total = np.zeros((), np.int64)
        for side, wraps in axes:
            total = total[..., None] + geometry.size // side * _axis_sums(side, wraps)
        return total
    # A distance d is the number of radii 0, 1, ..., d - 1 that it exceeds.
    sums = np.zeros(geometry.shape, np.int64)
    for reach in range(diameter(geometry)):
        ball = np.ones((), np.int64)
        for side, wraps in axes:
            ball = ball[..., None] * _within(side, wraps, reach)
        sums += geometry.size - ball
    return sums


def closeness(geometry: Geometry) -> Array:
    """Closeness centrality: number of other points over the sum of their distances. 0 for a single point."""
    if geometry.size == 1:
        return np.zeros(geometry.shape)
    return np.asarray((geometry.size - 1) / distance_sums(geometry))


def mean_distance(geometry: Geometry) -> float:
    """Mean distance over all pairs of different points."""
    if geometry.size == 1:
        return 0.0
    # Python integers, because the sum over all pairs overflows 64 bits from 1e7 points along an axis.
    axes = list(zip(geometry.shape, geometry.wraps, strict=True))
    if not geometry.is_moore:
        total = sum((geometry.size // side) ** 2 * _axis_pair_sum(side, wraps) for side, wraps in axes)
    else:
        total = _moore_pair_sum(geometry.size, axes)
    return total / (geometry.size * (geometry.size - 1))


def _axis_pair_sum(side: int, wraps: bool) -> int:
    """Sum of the distances of all ordered pairs along one axis."""
    return side * (side // 2) * ((side + 1) // 2) if wraps else (side - 1) * side * (side + 1) // 3


def _axis_pairs_within(side: int, wraps: bool, reach: int) -> int:
    """Number of ordered pairs of coordinates at most ``reach`` apart: a polynomial until it includes all pairs."""
    if reach >= (side // 2 if wraps else side - 1):
        return side * side
    return side * (2 * reach + 1) - (0 if wraps else reach * (reach + 1))


def _moore_pair_sum(size: int, axes: list[tuple[int, bool]]) -> int:
    """Sum of the Chebyshev distances of all ordered pairs.

    Equals the sum over the radii r = 0, 1, ... of the number of pairs farther apart than r. Between the radii at which
    an axis is exhausted the terms are a polynomial in r, which is summed exactly by its finite differences.
    """
    ends = sorted({0, *(side // 2 if wraps else side - 1 for side, wraps in axes)})
    total = 0
    for first, last in itertools.pairwise(ends):
        terms = [
            size**2 - math.prod(_axis_pairs_within(side, wraps, reach) for side, wraps in axes)
            for reach in range(first, min(last, first + 2 * len(axes) + 1))
        ]
        for order in range(len(terms)):
            total += math.comb(last - first, order + 1) * terms[0]
            terms = [b - a for a, b in itertools.pairwise(terms)]
    return total


def mean_clustering(geometry: Geometry) -> float:
    """Mean clustering coefficient: the fraction of a point's pairs of neighbours that are adjacent to each other.

    Points are grouped by whether they lie at an end of each axis; the points of a group have the same coefficient.
    """
    kinds: Counter[tuple[int, int]] = Counter({(1, 1) if geometry.is_moore else (0, 0): 1})
    for side, wraps in zip(geometry.shape, geometry.wraps, strict=True):
        along = _axis_kinds(side, wraps)
        merged: Counter[tuple[int, int]] = Counter()
        for (pairs, reach), many in kinds.items():
            for (more_pairs, more_reach), more in along.items():
                if geometry.is_moore:
                    merged[(pairs * more_pairs, reach * more_reach)] += many * more
                else:
                    # In a von Neumann neighbourhood, only the two neighbours in a ring of three are adjacent.
                    merged[(pairs + 2 * (more_pairs == 9), reach + more_reach - 1)] += many * more
        kinds = merged
    total = 0.0
    for (pairs, reach), many in kinds.items():
        degree = reach - 1 if geometry.is_moore else reach
        linked = pairs - 3 * reach + 2 if geometry.is_moore else pairs
        if degree > 1:
            total += many * linked / (degree * (degree - 1))
    return total / geometry.size


def _axis_kinds(side: int, wraps: bool) -> dict[tuple[int, int], int]:
    """Number of coordinates of each kind along one axis.

    A kind is (number of ordered pairs of equal or adjacent coordinates in the closed neighbourhood, its size).
    """
    if wraps:
        return {(9 if side == 3 else 7, 3): side}
    kinds = {1: {(1, 1): 1}, 2: {(4, 2): 2}}
    return kinds.get(side, {(4, 2): 2, (7, 3): side - 2})


def analyse(geometry: Geometry) -> dict[str, Any]:
    """All scalar measures, as a dict."""
    edges, size = count_edges(geometry), geometry.size
    return {
        "nodes": size,
        "edges": edges,
        "dimensions": len(geometry.shape),
        "shape": geometry.shape,
        "mean_degree": 2 * edges / size,
        "density": 2 * edges / (size * (size - 1)) if size > 1 else 0.0,
        "diameter": diameter(geometry),
        "radius": radius(geometry),
        "mean_distance": mean_distance(geometry),
        "clustering": mean_clustering(geometry),
        "components": 1,
        "is_connected": True,
        "is_bipartite": is_bipartite(geometry),
    }
