"""Closed-form measures of a lattice without costs: edges, degrees, distances, clustering, eigenvalues.

Eigenvalues are sums or products of those of the axes, which are path or cycle graphs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import reduce
from typing import Any

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.lattice.geometry import Array, Geometry


def count_edges(geometry: Geometry) -> int:
    """Number of edges."""
    steps = [side if wraps else side - 1 for side, wraps in geometry.axes]
    if geometry.is_moore:
        # Ordered pairs of points that are equal or adjacent along every axis, minus the points themselves.
        pairs = math.prod(side + 2 * step for side, step in zip(geometry.shape, steps, strict=True))
        return (pairs - geometry.size) // 2
    return sum(geometry.size // side * step for side, step in zip(geometry.shape, steps, strict=True))


def degrees(geometry: Geometry) -> Array:
    """Number of neighbours of every point, in the shape of the lattice."""
    along = [_within(*axis, 1) - 1 for axis in geometry.axes]
    if geometry.is_moore:
        return reduce(np.multiply.outer, [each + 1 for each in along]) - 1
    return reduce(np.add.outer, along)


def eccentricities(geometry: Geometry) -> Array:
    """Distance from every point to the farthest one."""
    along = [np.full(n, n // 2) if ring else np.maximum(np.arange(n), np.arange(n)[::-1]) for n, ring in geometry.axes]
    return reduce((np.maximum if geometry.is_moore else np.add).outer, along)


def diameter(geometry: Geometry) -> int:
    """Largest distance between two points."""
    return (max if geometry.is_moore else sum)(side // 2 if wraps else side - 1 for side, wraps in geometry.axes)


def radius(geometry: Geometry) -> int:
    """Smallest eccentricity."""
    return (max if geometry.is_moore else sum)(side // 2 for side in geometry.shape)


def is_bipartite(geometry: Geometry) -> bool:
    """Whether the graph is two-colourable: no odd ring, and no triangle of a diagonal and two straight steps."""
    odd = any(wraps and side % 2 for side, wraps in geometry.axes)
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
    if not geometry.is_moore:
        return reduce(np.add.outer, [geometry.size // axis[0] * _axis_sums(*axis) for axis in geometry.axes])
    # A distance d is the number of radii 0, 1, ..., d - 1 that it exceeds.
    sums = np.zeros(geometry.shape, np.int64)
    for reach in range(diameter(geometry)):
        sums += geometry.size - reduce(np.multiply.outer, [_within(*axis, reach) for axis in geometry.axes])
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
    axes = list(geometry.axes)
    # With von Neumann neighbours the distances along the axes add up.
    parts = [(geometry.size, axes)] if geometry.is_moore else [(side, [(side, wraps)]) for side, wraps in axes]
    total = sum((geometry.size // size) ** 2 * _pair_sum(size, part) for size, part in parts)
    return total / (geometry.size * (geometry.size - 1))


def _axis_pairs_within(side: int, wraps: bool, reach: int) -> int:
    """Number of ordered pairs of coordinates at most ``reach`` apart: a polynomial until it includes all pairs."""
    if reach >= (side // 2 if wraps else side - 1):
        return side * side
    return side * (2 * reach + 1) - (0 if wraps else reach * (reach + 1))


def _pair_sum(size: int, axes: list[tuple[int, bool]]) -> int:
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
    for side, wraps in geometry.axes:
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


def counts(geometry: Geometry, edges: int, components: int) -> dict[str, Any]:
    """The measures of any lattice that follow from its numbers of edges and components, as a dict."""
    size = geometry.size
    return {
        "nodes": size,
        "edges": edges,
        "dimensions": len(geometry.shape),
        "shape": geometry.shape,
        "mean_degree": 2 * edges / size,
        "density": 2 * edges / (size * (size - 1)) if size > 1 else 0.0,
        "components": components,
        "is_connected": components == 1,
    }


def analyse(geometry: Geometry) -> dict[str, Any]:
    """All scalar measures, as a dict."""
    return counts(geometry, count_edges(geometry), 1) | {
        "diameter": diameter(geometry),
        "radius": radius(geometry),
        "mean_distance": mean_distance(geometry),
        "clustering": mean_clustering(geometry),
        "is_bipartite": is_bipartite(geometry),
    }


def axis_laplacian(side: int, wraps: bool) -> Array:
    """Laplacian eigenvalues of a cycle (in FFT order) or a path (in DCT order): ``4 sin^2`` of half the wave number."""
    turns = np.arange(side) / side if wraps else np.arange(side) / (2 * side)
    return np.asarray(4.0 * np.sin(math.pi * turns) ** 2)


def _axis_adjacency(side: int, wraps: bool) -> Array:
    """Adjacency eigenvalues of a cycle or a path: ``2 cos`` of the wave number."""
    turns = 2.0 * np.arange(side) / side if wraps else np.arange(1, side + 1) / (side + 1)
    return np.asarray(2.0 * np.cos(math.pi * turns))


def is_regular(geometry: Geometry) -> bool:
    """Whether all points have the same number of neighbours."""
    return all(wraps or side <= 2 for side, wraps in geometry.axes)


def adjacency_spectrum(geometry: Geometry) -> Array:
    """Adjacency eigenvalues by wave number along each axis. With Moore neighbours ``A + 1`` is a product over axes."""
    along = [_axis_adjacency(*axis) for axis in geometry.axes]
    if geometry.is_moore:
        return reduce(np.multiply.outer, [each + 1.0 for each in along]) - 1.0
    return reduce(np.add.outer, along)


def laplacian_spectrum(geometry: Geometry) -> Array:
    """Laplacian eigenvalues by wave number along each axis, in the order of :func:`axis_transforms`."""
    waves = [axis_laplacian(*axis) for axis in geometry.axes]
    if not geometry.is_moore:
        return reduce(np.add.outer, waves)
    if not is_regular(geometry):
        raise InvalidInputError(
            f"the Laplacian of a Moore lattice {geometry.shape} that is not periodic has no closed spectrum, because "
            "its degrees differ; use periodic=True or neighbourhood='von_neumann', or numpy.linalg.eigvalsh on to_csr()"
        )
    # All degrees are equal, and along each axis 1 + A = 1 + degree - L. The recurrence adds positive terms only: a
    # difference of products would cancel for long waves.
    total, product = np.zeros(()), 1.0
    for along, side in zip(waves, geometry.shape, strict=True):
        closed_degree = float(min(side, 3))  # 1 + degree
        total = total[..., None] * closed_degree + (product - total[..., None]) * along
        product *= closed_degree
    return total


def axis_transforms(geometry: Geometry) -> tuple[str, ...]:
    """The transform that diagonalises the Laplacian of each axis."""
    return tuple("fft" if wraps else "dct2" for wraps in geometry.wraps)
