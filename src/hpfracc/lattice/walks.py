r"""Exact sampling of random walks whose transition matrix comes from a fractional Laplacian.

On a ring all rows of the transition matrix are shifts of one kernel, so one table of jumps serves all points. A bounded
axis of n points is a ring of 2n points folded in half: folding the ring's jumps gives the rows of the bounded axis,
except for jumps that land on the walker's own mirror image. Those are drawn again.
"""

from __future__ import annotations

import numpy as np

from hpfracc.engine.execution.api import spectral_multiply
from hpfracc.lattice.geometry import Array, Geometry
from hpfracc.lattice.spectra import axis_laplacian, laplacian_spectrum

__all__ = ["sample_walks"]


def _rings(geometry: Geometry) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Length of the ring that each axis is embedded in, and whether it is folded.

    An axis of one or two points is a ring itself.
    """
    folded = tuple(side > 2 and not wraps for side, wraps in zip(geometry.shape, geometry.wraps, strict=True))
    return tuple(2 * side if fold else side for side, fold in zip(geometry.shape, folded, strict=True)), folded


def _jump_weights(geometry: Geometry, alpha: float, sides: tuple[int, ...], folded: tuple[bool, ...]) -> Array:
    """Unnormalised probabilities of all jumps on the rings, flattened."""
    if geometry.is_moore:
        powers = laplacian_spectrum(geometry) ** (0.5 * alpha)
    else:
        total = np.zeros(())
        for side, fold, wraps in zip(sides, folded, geometry.wraps, strict=True):
            total = total[..., None] + axis_laplacian(side, fold or wraps)
        powers = total ** (0.5 * alpha)
    unit = np.zeros(sides)
    unit[(0,) * len(sides)] = 1.0
    kernel = np.asarray(spectral_multiply(powers, unit, axes=tuple(range(-len(sides), 0)), kinds="fft")).reshape(-1)
    weights = np.maximum(-kernel, 0.0)
    weights[0] = 0.0
    return np.asarray(weights)


def sample_walks(
    geometry: Geometry, alpha: float, start: int, steps: int, walkers: int, rng: np.random.Generator
) -> Array:
    """Indices of the visited points, shape ``(walkers, steps + 1)``."""
    sides, folded = _rings(geometry)
    cumulative = np.cumsum(_jump_weights(geometry, alpha, sides, folded))
    walks = np.empty((walkers, steps + 1), np.int64)
    walks[:, 0] = start
    if not any(folded):
        # Flat, because NumPy returns wrong coordinates for a long column (numpy/numpy#31980).
        shifts = [
            shift.reshape(walkers, steps)
            for shift in np.unravel_index(_draw_jumps(cumulative, walkers * steps, rng), sides)
        ]
        walks[:, 1:] = 0
        for here, shift, side, stride in zip(
            geometry.coordinates(start), shifts, geometry.shape, geometry.strides, strict=True
        ):
            walks[:, 1:] += (here + np.cumsum(shift, axis=1)) % side * stride
        return walks
    for step in range(steps):
        walks[:, step + 1] = _folded_step(geometry, sides, folded, cumulative, walks[:, step], rng)
    return walks


def _draw_jumps(cumulative: Array, count: int, rng: np.random.Generator) -> Array:
    return np.asarray(np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right"))


def _folded_step(
    geometry: Geometry,
    sides: tuple[int, ...],
    folded: tuple[bool, ...],
    cumulative: Array,
    indices: Array,
    rng: np.random.Generator,
) -> Array:
    found = indices.copy()
    pending = np.arange(len(indices))
    while len(pending):
        shifts = np.unravel_index(_draw_jumps(cumulative, len(pending), rng), sides)
        there = np.zeros(len(pending), np.int64)
        for here, shift, ring, fold, stride in zip(
            geometry.columns(indices[pending]), shifts, sides, folded, geometry.strides, strict=True
        ):
            coordinate = (here + shift) % ring
            if fold:
                coordinate = np.minimum(coordinate, ring - 1 - coordinate)
            there += coordinate * stride
        found[pending] = there
        pending = pending[there == indices[pending]]
    return found
