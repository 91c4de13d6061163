"""Brownian motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc.solvers.sde.noise.process import GaussianNoise, LevyNoise, TimeGrid, stream_of
from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = ["Brownian"]


@final
@dataclass(frozen=True, slots=True)
class Brownian(GaussianNoise, LevyNoise):
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

    def _moments(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _increments(self, source: RandomSource, steps: np.ndarray, low: int, high: int, stream: int) -> Any:
        return source.numbers(low, high - low, steps.shape[-1], stream=stream) * source.array(np.sqrt(steps))

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        return LevyNoise._sample(self, source, grid, count)

    def _refine(self, source: RandomSource, rows: np.ndarray, grid: TimeGrid, fine: TimeGrid, parts: int) -> np.ndarray:
        """An independent bridge within each step."""
        steps = np.diff(fine.times, prepend=0.0)
        drawn: np.ndarray = self._increments(source, steps, 0, rows.shape[0], stream_of(fine)).cumsum(-1)
        error = rows - drawn[:, ::parts]
        shares = np.arange(parts) / parts
        between = error[:, :-1, None] + np.diff(error)[:, :, None] * shares
        drawn[:, :-1] += between.reshape(rows.shape[0], -1)
        return drawn
