"""The driving noise of an equation: drawn by path number, correlated, and in antithetic pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._arrays import is_tracer, to_host
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.sde.noise.process import GaussianNoise, Noise, read_grid
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable import StableLevy

#: Stream of the normal numbers of the second set; the processes use stream 0.
_APART = 1
#: Largest difference of a correlation matrix from its transpose, and of its diagonal from 1.
_ROUNDING = 1e-10


def refuse_antithetic(noise: Noise) -> None:
    """Raise an error for noise whose law is not symmetric."""
    if not (isinstance(noise, GaussianNoise) or (isinstance(noise, StableLevy) and not noise.beta)):
        raise InvalidInputError(f"antithetic=True with {noise!r}, whose law is not symmetric; omit it")


def read_correlation(correlation: Any, noise: Noise, noises: int, source: RandomSource) -> Any:
    """Check a correlation matrix C; returns the lower triangular factor L with ``L L^T = C``.

    Raises
    ------
    InvalidInputError
        If it is not symmetric, has no unit diagonal, or is not positive definite.
    """
    if correlation is None:
        return None
    if not isinstance(noise, GaussianNoise):
        raise InvalidInputError(f"correlation= with {noise!r}, which has no finite variance; mix it in the diffusion")
    try:
        matrix = source.array(correlation)
    except (TypeError, ValueError):
        raise InvalidInputError(f"correlation={correlation!r}: give a matrix of numbers") from None
    if tuple(matrix.shape) != (noises, noises):
        raise ShapeError(
            f"correlation has shape {tuple(matrix.shape)} for {noises} driving noises; give ({noises}, {noises})"
        )
    if not is_tracer(matrix):
        _check_correlation(matrix)
    return source.xp.module.linalg.cholesky(matrix)


def _check_correlation(matrix: Any) -> None:
    values = to_host(matrix).astype(np.float64)
    rounding = _ROUNDING if str(matrix.dtype).endswith("64") else 1e-6
    if not np.all(np.isfinite(values)):
        raise InvalidInputError("correlation has values that are not finite; give finite numbers")
    off = np.abs(values - values.T)
    if off.max() > rounding:
        i, j = np.unravel_index(int(off.argmax()), values.shape)
        raise InvalidInputError(
            f"correlation is not symmetric: entries ({i}, {j}) and ({j}, {i}) are {values[i, j]:.6g} and "
            f"{values[j, i]:.6g}; use (C + C.T) / 2"
        )
    if np.max(np.abs(np.diag(values) - 1.0)) > rounding:
        raise InvalidInputError(
            f"correlation has the diagonal {np.diag(values)}, which is not 1; divide a covariance matrix by the "
            "standard deviations, and give these in the diffusion"
        )
    least = float(np.linalg.eigvalsh(values)[0])
    if least <= rounding:
        raise InvalidInputError(
            f"correlation is not positive definite: its smallest eigenvalue is {least:.6g}; use the nearest matrix "
            "that is, or fewer noises if one determines another"
        )


@dataclass(frozen=True, slots=True)
class Driving:
    """The driving noise of an equation.

    Attributes
    ----------
    noise : Noise
        Process of one component.
    times : ndarray, shape (n,)
        Uniform times from 0 on.
    noises, sets : int
        Number of components, and of independent processes per component.
    factor : array, shape (m, m), or None
        Factor of the correlation matrix.
    antithetic : bool
        Whether every second path has the negative noise of the one before.
    apart : bool
        Whether the second set has independent normal increments of variance 1, for any process of the first.
    every : int
        The paths are drawn at ``times``; every one in this number is used.
    """

    noise: Noise
    times: np.ndarray
    noises: int
    sets: int
    factor: Any
    antithetic: bool
    apart: bool = False
    every: int = 1

    def paths(self, source: RandomSource, low: int, high: int) -> Any:
        """The paths ``low`` to ``high``, shape ``(paths, sets * m, (n - 1) / every + 1)``."""
        share, number = 2 if self.antithetic else 1, self.sets * self.noises
        drawn = self.noises if self.apart else number
        xp = source.xp
        count = (high - low) // share
        first = (source.first + low) // share * drawn
        own = dataclasses.replace(source, first=first)
        found = self.noise._sample(own, read_grid(self.times), count * drawn)
        found = xp.astype(found, source.dtype).reshape(count, drawn, self.times.size)
        if self.apart:
            normals = own.numbers(0, count * drawn, self.times.size - 1, stream=_APART).cumsum(-1) / self.every**0.5
            normals = xp.concatenate([xp.zeros_like(normals[:, :1]), normals], -1)
            found = xp.concatenate([found, normals.reshape(found.shape)], 1)
        if self.every > 1:
            found = found[..., :: self.every]
        if self.factor is not None:
            # Each set on its own.
            sets = found.reshape(count, self.sets, self.noises, found.shape[-1])
            found = xp.matmul(self.factor, sets).reshape(found.shape)
        if not self.antithetic:
            return found
        return xp.stack([found, -found], 1).reshape(high - low, number, found.shape[-1])
