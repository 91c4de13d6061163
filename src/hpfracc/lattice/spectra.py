"""Eigenvalues of a lattice: sums or products of the eigenvalues of its axes, which are path or cycle graphs."""

from __future__ import annotations

import math

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.lattice.geometry import Array, Geometry

__all__ = ["adjacency_spectrum", "axis_laplacian", "axis_transforms", "is_regular", "laplacian_spectrum"]


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
    return all(wraps or side <= 2 for side, wraps in zip(geometry.shape, geometry.wraps, strict=True))


def adjacency_spectrum(geometry: Geometry) -> Array:
    """Adjacency eigenvalues by wave number along each axis. With Moore neighbours ``A + 1`` is a product over axes."""
    total = np.zeros(())
    for side, wraps in zip(geometry.shape, geometry.wraps, strict=True):
        along = _axis_adjacency(side, wraps)
        total = (total[..., None] + 1.0) * (along + 1.0) - 1.0 if geometry.is_moore else total[..., None] + along
    return total


def laplacian_spectrum(geometry: Geometry) -> Array:
    """Laplacian eigenvalues by wave number along each axis, in the order of :func:`axis_transforms`."""
    waves = [axis_laplacian(side, wraps) for side, wraps in zip(geometry.shape, geometry.wraps, strict=True)]
    total = np.zeros(())
    if not geometry.is_moore:
        for along in waves:
            total = total[..., None] + along
        return total
    if not is_regular(geometry):
        raise InvalidInputError(
            f"the Laplacian of a Moore lattice {geometry.shape} that is not periodic has no closed spectrum, because "
            "its degrees differ; use periodic=True or neighbourhood='von_neumann', or numpy.linalg.eigvalsh on to_csr()"
        )
    # All degrees are equal, and along each axis 1 + A = 1 + degree - L. The recurrence adds positive terms only: a
    # difference of products would cancel for long waves.
    product = 1.0
    for along, side in zip(waves, geometry.shape, strict=True):
        closed_degree = float(min(side, 3))  # 1 + degree
        total = total[..., None] * closed_degree + (product - total[..., None]) * along
        product *= closed_degree
    return total


def axis_transforms(geometry: Geometry) -> tuple[str, ...]:
    """The transform that diagonalises the Laplacian of each axis."""
    return tuple("fft" if wraps else "dct2" for wraps in geometry.wraps)
