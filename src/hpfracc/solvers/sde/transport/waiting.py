"""Waiting times between the jumps of a random walk."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import check_positive
from hpfracc.solvers.sde.noise.source import RandomSource
from hpfracc.solvers.sde.noise.stable_bridge import one_sided

__all__ = [
    "ExponentialWaiting",
    "FixedWaiting",
    "MittagLefflerWaiting",
    "ParetoWaiting",
    "StableWaiting",
    "WaitingTimes",
]


class WaitingTimes(ABC):
    """A law of positive times, drawn independently for every jump."""

    @abstractmethod
    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        """``count`` waiting times for each of the given paths, shape ``(paths.size, count)``."""

    def _arrivals(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, time: np.ndarray, before: int
    ) -> np.ndarray:
        """Times of the next ``count`` jumps, after ``before`` of them, the last of which was at ``time``."""
        waits = self._draw(source, paths, count, stream)
        waits[:, 0] += time
        return np.cumsum(waits, -1, out=waits)

    @property
    def infinite_mean(self) -> bool:
        """Whether the mean waiting time is infinite."""
        return False

    def mean_jumps(self, t: Any) -> np.ndarray:
        """Mean number of jumps until the time t, if it has a closed form."""
        raise InvalidInputError(
            f"the mean number of jumps with {self!r} has no closed form; use ExponentialWaiting, MittagLefflerWaiting "
            "or FixedWaiting, or average over samples"
        )


@final
@dataclass(frozen=True)
class ExponentialWaiting(WaitingTimes):
    """Exponential waiting times: jumps of a Poisson process, which give normal diffusion.

    Parameters
    ----------
    mean : float
        Mean waiting time.
    """

    mean: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "mean")

    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        return np.asarray(-self.mean * np.log(source.numbers_of(paths, count, kind="uniform", stream=stream)))

    def mean_jumps(self, t: Any) -> np.ndarray:
        """``t / mean``."""
        return np.asarray(np.asarray(t, float) / self.mean)


@final
@dataclass(frozen=True)
class FixedWaiting(WaitingTimes):
    """Jumps at multiples of a fixed step: with stable jumps, a Levy flight in discrete time.

    Parameters
    ----------
    step : float
        Time between jumps.
    """

    step: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "step")

    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        return np.full((paths.size, count), self.step)

    def _arrivals(
        self, source: RandomSource, paths: np.ndarray, count: int, stream: int, time: np.ndarray, before: int
    ) -> np.ndarray:
        # Multiples, not sums, which would accumulate rounding errors.
        return np.tile(self.step * np.arange(before + 1.0, before + count + 1.0), (paths.size, 1))

    def mean_jumps(self, t: Any) -> np.ndarray:
        """Number of full steps in t."""
        return np.asarray(np.floor(np.asarray(t, float) / self.step * (1.0 + 1e-12)))


@final
@dataclass(frozen=True)
class ParetoWaiting(WaitingTimes):
    r"""The Pareto law, :math:`P(T > t) = (t / \tau)^{-\alpha}` for :math:`t \ge \tau`.

    With :math:`\alpha < 1` its mean is infinite, and the mean number of jumps grows like
    :math:`t^\alpha / (\tau^\alpha\,\Gamma(1-\alpha)\,\Gamma(1+\alpha))`.

    Parameters
    ----------
    alpha : float
        Exponent of the tail, positive.
    scale : float
        The shortest waiting time :math:`\tau`.
    """

    alpha: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "alpha", "scale")

    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        uniform = source.numbers_of(paths, count, kind="uniform", stream=stream)
        with np.errstate(over="ignore"):  # an effectively infinite waiting time
            return np.asarray(self.scale * uniform ** (-1.0 / self.alpha))

    @property
    def infinite_mean(self) -> bool:
        """At ``alpha = 1`` and below."""
        return self.alpha <= 1.0


@final
@dataclass(frozen=True)
class MittagLefflerWaiting(WaitingTimes):
    r"""The Mittag-Leffler law, :math:`P(T > t) = E_\alpha(-(t / \tau)^\alpha)`.

    Its jumps are those of the fractional Poisson process. The mean number of jumps is
    :math:`t^\alpha / (\tau^\alpha\,\Gamma(1+\alpha))` at all times, not only late ones. At :math:`\alpha = 1` it is the
    exponential law.

    Parameters
    ----------
    alpha : float
        Index, above 0 and at most 1.
    scale : float
        Time scale :math:`\tau`.

    References
    ----------
    1. T. J. Kozubowski, S. T. Rachev, "Univariate geometric stable laws", J. Comput. Anal. Appl. 1, 1999; R. Hilfer,
       L. Anton, "Fractional master equations and fractal time random walks", Phys. Rev. E 51, 1995.
    """

    alpha: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "alpha", "scale")
        if self.alpha > 1.0:
            raise InvalidInputError(f"alpha={self.alpha}: the Mittag-Leffler law has an index above 0 and at most 1")

    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        uniform = source.numbers_of(paths, 2 * count, kind="uniform", stream=stream)
        wait = -self.scale * np.log(uniform[:, :count])
        if self.alpha == 1.0:
            return np.asarray(wait)
        angle = (math.pi * self.alpha) * uniform[:, count:]
        with np.errstate(over="ignore"):
            ratio = np.sin(math.pi * self.alpha - angle) / np.sin(angle)
            return np.asarray(wait * ratio ** (1.0 / self.alpha))

    @property
    def infinite_mean(self) -> bool:
        """Below ``alpha = 1``."""
        return self.alpha < 1.0

    def mean_jumps(self, t: Any) -> np.ndarray:
        """``(t / scale)^alpha / Gamma(1 + alpha)``."""
        return np.asarray((np.asarray(t, float) / self.scale) ** self.alpha / special.gamma(1.0 + self.alpha))


@final
@dataclass(frozen=True)
class StableWaiting(WaitingTimes):
    r"""One-sided stable waiting times, :math:`E\,e^{-s T} = e^{-(\tau s)^\alpha}`.

    The sum of n of them has the law of :math:`n^{1/\alpha}` times one: the walk is a process on the clock of an inverse
    stable subordinator, observed in steps of :math:`\tau^\alpha` of that clock.

    Parameters
    ----------
    alpha : float
        Index, between 0 and 1.
    scale : float
        Time scale :math:`\tau`.
    """

    alpha: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "alpha", "scale")
        if self.alpha >= 1.0:
            raise InvalidInputError(f"alpha={self.alpha}: a one-sided stable law has an index between 0 and 1")

    def _draw(self, source: RandomSource, paths: np.ndarray, count: int, stream: int) -> np.ndarray:
        uniform = source.numbers_of(paths, 2 * count, kind="uniform", stream=stream)
        with np.errstate(over="ignore"):
            return np.asarray(self.scale * one_sided(self.alpha, uniform[:, :count], -np.log(uniform[:, count:])))

    @property
    def infinite_mean(self) -> bool:
        """Always."""
        return True
