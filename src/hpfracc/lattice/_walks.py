r"""Walks whose steps are the rows of a fractional Laplacian, sampled exactly from one kernel for all points.

On a ring every row is the same one, shifted. A bounded axis of n points is half a ring of 2n on which everything is
mirrored: its rows are those of the ring with the images folded back, less the chance to land on an image of the point
itself, so that a walker on the ring, folded, who throws again when he would stay, walks by the rows of the path.
"""

from __future__ import annotations

import numpy as np

from hpfracc.engine.execution.api import spectral_multiply
from hpfracc.errors import InvalidInputError
from hpfracc.lattice._geometry import Array, Geometry
from hpfracc.lattice._spectra import axis_waves, laplacian_spectrum

__all__ = ["sample_walks"]


def _rings(geometry: Geometry) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Sides of the ring each axis is part of, and whether it is folded; one or two points are a ring as they are."""
    folded = tuple(side > 2 and not wraps for side, wraps in zip(geometry.shape, geometry.wraps, strict=True))
    return tuple(2 * side if fold else side for side, fold in zip(geometry.shape, folded, strict=True)), folded


def _jumps(geometry: Geometry, alpha: float, sides: tuple[int, ...], folded: tuple[bool, ...]) -> Array:
    """Chances of every jump on the rings, in a row."""
    if geometry.is_moore:
        powers = laplacian_spectrum(geometry) ** (0.5 * alpha)
    else:
        total = np.zeros(())
        for side, fold, wraps in zip(sides, folded, geometry.wraps, strict=True):
            total = total[..., None] + axis_waves(side, fold or wraps)
        powers = total ** (0.5 * alpha)
    unit = np.zeros(sides)
    unit[(0,) * len(sides)] = 1.0
    kernel = np.asarray(spectral_multiply(powers, unit, axes=tuple(range(-len(sides), 0)), kinds="fft")).reshape(-1)
    chances = np.maximum(-kernel, 0.0)
    chances[0] = 0.0
    return np.asarray(chances)


def sample_walks(
    geometry: Geometry, alpha: float, start: int, steps: int, walkers: int, rng: np.random.Generator
) -> Array:
    """Points visited, shape ``(walkers, steps + 1)``."""
    if geometry.size == 1:
        raise InvalidInputError("a lattice of one point has nowhere to walk to")
    sides, folded = _rings(geometry)
    heights = np.cumsum(_jumps(geometry, alpha, sides, folded))
    walks = np.empty((walkers, steps + 1), np.int64)
    walks[:, 0] = start
    if not any(folded):
        # In a row: of a long column NumPy gives wrong coordinates (numpy/numpy#31980).
        shifts = [
            shift.reshape(walkers, steps) for shift in np.unravel_index(_throw(heights, walkers * steps, rng), sides)
        ]
        walks[:, 1:] = 0
        for here, shift, side, stride in zip(
            geometry.coordinates(start), shifts, geometry.shape, geometry.strides, strict=True
        ):
            walks[:, 1:] += (here + np.cumsum(shift, axis=1)) % side * stride
        return walks
    for step in range(steps):
        walks[:, step + 1] = _folded_step(geometry, sides, folded, heights, walks[:, step], rng)
    return walks


def _throw(heights: Array, count: int, rng: np.random.Generator) -> Array:
    return np.asarray(np.searchsorted(heights, rng.random(count) * heights[-1], side="right"))


def _folded_step(
    geometry: Geometry,
    sides: tuple[int, ...],
    folded: tuple[bool, ...],
    heights: Array,
    places: Array,
    rng: np.random.Generator,
) -> Array:
    found = places.copy()
    waiting = np.arange(len(places))
    while len(waiting):
        shifts = np.unravel_index(_throw(heights, len(waiting), rng), sides)
        there = np.zeros(len(waiting), np.int64)
        for here, shift, ring, fold, stride in zip(
            geometry.columns(places[waiting]), shifts, sides, folded, geometry.strides, strict=True
        ):
            coordinate = (here + shift) % ring
            if fold:
                coordinate = np.minimum(coordinate, ring - 1 - coordinate)
            there += coordinate * stride
        found[waiting] = there
        waiting = waiting[there == places[waiting]]
    return found
