"""A process subordinated to an inverse stable subordinator: subdiffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.fractional_brownian import FractionalBrownian
from hpfracc.solvers.sde.noise.inverse_subordinator import InverseSubordinator, increment_moment, ordered_times
from hpfracc.solvers.sde.noise.process import MAX_POINTS, GaussianNoise, LevyNoise, Noise, TimeGrid, plain_hurst
from hpfracc.solvers.sde.noise.source import RandomSource

__all__ = ["Subordinated"]


@final
@dataclass(frozen=True)
class Subordinated(Noise):
    r"""The process :math:`X_{E_t}`, with the inverse stable subordinator E of index ``alpha``, independent of X.

    With Brownian motion it is subdiffusion: the density of :math:`\sqrt{2} W_{E_t}` solves
    :math:`D_t^\alpha p = \partial_x^2 p`.

    Parameters
    ----------
    process : Noise
        A Levy process, or a Gaussian one (which needs a matrix for each path).
    alpha : float
        Index of the clock, between 0 and 1.

    References
    ----------
    1. M. M. Meerschaert, H.-P. Scheffler, "Limit theorems for continuous-time random walks with infinite mean
       waiting times", J. Appl. Probab. 41, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from hpfracc import noise
    >>> slow = noise.Subordinated(noise.Brownian(), 0.6)
    >>> slow.sample(np.linspace(0, 1, 11), size=4, rng=1).shape
    (4, 11)
    """

    process: Noise
    alpha: float

    def __post_init__(self) -> None:
        if not isinstance(self.process, LevyNoise | GaussianNoise):
            raise InvalidInputError(
                f"process={self.process!r}: give a Levy process or a Gaussian one, such as Brownian()"
            )
        object.__setattr__(self, "alpha", InverseSubordinator(self.alpha).alpha)

    def covariance(self, s: Any, t: Any) -> np.ndarray:
        r"""Covariance of :math:`X_{E_s}` and :math:`X_{E_t}`, for arrays that broadcast.

        For a Levy process with mean m and variance v at time 1 it is :math:`v\,E\,E_{\min(s,t)} +
        m^2\,\mathrm{Cov}(E_s, E_t)`, for fractional Brownian motion
        :math:`\tfrac12 E (E_s^{2H} + E_t^{2H} - |E_t - E_s|^{2H})`.
        """
        if isinstance(self.process, LevyNoise):
            moments = self.process._moments()
            if moments is None:
                raise InvalidInputError(
                    f"{self!r} has no finite covariance; compare quantiles or characteristic functions"
                )
            mean, variance = moments
            earlier = increment_moment(self.alpha, 1.0, 0.0, ordered_times(s, t)[0])
            # Avoids 0 times a value that may overflow.
            driven = mean**2 * InverseSubordinator(self.alpha).covariance(s, t) if mean else 0.0
            return np.asarray(variance * earlier + driven)
        if isinstance(self.process, FractionalBrownian) and self.process.kind == "fbm":
            power = 2.0 * plain_hurst(self.process.H)
            whole = [increment_moment(self.alpha, power, 0.0, time) for time in (s, t)]
            return np.asarray(0.5 * (whole[0] + whole[1] - increment_moment(self.alpha, power, s, t)))
        return super().covariance(s, t)

    def refine(self, path: Any, t: Any, factor: int = 2, rng: Any = None, *, first_path: int = 0) -> Any:
        """Not available, because the path does not determine its clock."""
        raise InvalidInputError(
            f"there is no bridge for {self!r}: its clock cannot be inferred from the path, and without it "
            "intermediate points depend on more than their neighbours; sample on the fine grid and take a subset"
        )

    def _sample(self, source: RandomSource, grid: TimeGrid, count: int) -> Any:
        host = source.on_host()
        result = np.empty((count, grid.times.size))
        for low, high in host.chunks(count, 8 * grid.times.size):
            part = RandomSource("numpy", "cpu", "float64", host.key, host.first + low)
            clock = InverseSubordinator(self.alpha)._sample(part, grid, high - low)
            if isinstance(self.process, LevyNoise):
                steps = np.diff(clock, prepend=0.0)
                result[low:high] = self.process._increments(part, steps, 0, high - low, 0).cumsum(-1)
            elif isinstance(self.process, GaussianNoise):
                result[low:high] = _gaussian(self.process, part, clock)
        return source.array(result)


def _gaussian(process: GaussianNoise, source: RandomSource, clock: np.ndarray) -> np.ndarray:
    """Values at each path's own times; equal times have equal values."""
    normals = source.numbers(0, clock.shape[0], clock.shape[1])
    result = np.zeros(clock.shape)
    if clock.shape[1] > MAX_POINTS:
        raise InvalidInputError(
            f"{clock.shape[1]:,} times: {process!r} needs a matrix of that size for each path; use at most "
            f"{MAX_POINTS:,}"
        )
    for row, times, numbers in zip(result, clock, normals, strict=True):
        different, places = np.unique(times, return_inverse=True)
        random = process.covariance(different, different) > 0
        values = np.zeros(different.size)
        values[random] = process._factor(different[random]) @ numbers[: np.count_nonzero(random)]
        row[:] = values[places]
    return result
