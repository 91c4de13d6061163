"""Eigenvalues of a lattice's matrices: sums or products of those of its axes, which are paths or rings."""

from __future__ import annotations

import math

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.lattice._geometry import Array, Geometry

__all__ = ["adjacency_spectrum", "axis_waves", "is_regular", "laplacian_spectrum", "transforms"]


def axis_waves(side: int, wraps: bool) -> Array:
    """``4 sin^2`` of half the wave number: the Laplacian of a ring, in the order of its transform, or of a path."""
    turns = np.arange(side) / side if wraps else np.arange(side) / (2 * side)
    return np.asarray(4.0 * np.sin(math.pi * turns) ** 2)


def _axis_adjacency(side: int, wraps: bool) -> Array:
    """``2 cos`` of the wave number: the neighbours of a ring, or of a path."""
    turns = 2.0 * np.arange(side) / side if wraps else np.arange(1, side + 1) / (side + 1)
    return np.asarray(2.0 * np.cos(math.pi * turns))


def is_regular(geometry: Geometry) -> bool:
    """Whether all points have equally many neighbours."""
    return all(wraps or side <= 2 for side, wraps in zip(geometry.shape, geometry.wraps, strict=True))


def adjacency_spectrum(geometry: Geometry) -> Array:
    """By wave number along each axis; ``A + 1`` of diagonal steps is the product over the axes."""
    total = np.zeros(())
    for side, wraps in zip(geometry.shape, geometry.wraps, strict=True):
        along = _axis_adjacency(side, wraps)
        total = (total[..., None] + 1.0) * (along + 1.0) - 1.0 if geometry.is_moore else total[..., None] + along
    return total


def laplacian_spectrum(geometry: Geometry) -> Array:
    """By wave number along each axis, in the order of :func:`transforms`."""
    waves = [axis_waves(side, wraps) for side, wraps in zip(geometry.shape, geometry.wraps, strict=True)]
    total = np.zeros(())
    if not geometry.is_moore:
        for along in waves:
            total = total[..., None] + along
        return total
    if not is_regular(geometry):
        raise InvalidInputError(
            f"the Laplacian of a Moore lattice {geometry.shape} with free ends has no closed spectrum: its degrees "
            "differ; use periodic=True or neighbourhood='von_neumann', or numpy.linalg.eigvalsh of to_csr()"
        )
    # All degrees are the same, and along each axis 1 + A is 1 + degree - L. Written as a sum of positive terms, for
    # the difference of products would lose the digits of long waves.
    product = 1.0
    for along, side in zip(waves, geometry.shape, strict=True):
        most = float(min(side, 3))
        total = total[..., None] * most + (product - total[..., None]) * along
        product *= most
    return total


def transforms(geometry: Geometry) -> tuple[str, ...]:
    """Along each axis, the transform to the eigenvectors of its Laplacian."""
    return tuple("fft" if wraps else "dct2" for wraps in geometry.wraps)
