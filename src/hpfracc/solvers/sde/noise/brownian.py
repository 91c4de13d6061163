"""Brownian motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc.solvers.sde.noise.process import GaussianNoise, Grid, stream_of
from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = ["Brownian"]


@final
@dataclass(frozen=True, slots=True)
class Brownian(GaussianNoise):
    r"""Standard Brownian motion: independent increments, :math:`E\,W_s W_t = \min(s, t)`.

    Exact on any grid.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> noise.Brownian().sample(np.linspace(0, 1, 5), size=3, rng=1).shape
    (3, 5)
    """

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        """``min(s, t)``."""
        return np.asarray(np.minimum(np.asarray(s, float), np.asarray(t, float)))

    def _sample(self, source: RandomSource, grid: Grid, count: int) -> Any:
        steps = np.sqrt(np.diff(grid.times, prepend=0.0))
        if source.library == "numpy":
            return _sums(source, steps, count, 0)
        scaled = source.numbers(0, count, steps.size) * source.array(steps)
        return scaled.cumsum(-1)

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: Grid, fine: Grid, parts: int) -> np.ndarray:
        """A bridge within each step, on its own."""
        drawn = _sums(source, np.sqrt(np.diff(fine.times, prepend=0.0)), rows.shape[0], stream_of(fine))
        error = rows - drawn[:, ::parts]
        shares = np.arange(parts) / parts
        between = error[:, :-1, None] + np.diff(error)[:, :, None] * shares
        drawn[:, :-1] += between.reshape(rows.shape[0], -1)
        return drawn


def _sums(source: RandomSource, deviations: np.ndarray, count: int, stream: int) -> np.ndarray:
    result = np.empty((count, deviations.size), source.dtype)
    for low, high in source.chunks(count, deviations.size):
        numbers = source.numbers(low, high - low, deviations.size, stream=stream)
        np.cumsum(numbers * deviations.astype(source.dtype), -1, out=result[low:high])
    return result
