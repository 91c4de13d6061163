"""Prices by conditional Monte Carlo: means of Black's formula over the variance paths, with three controls."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from hpfracc.errors import AccuracyWarning
from hpfracc.solvers.sde.rough.black import black_price

__all__ = ["ConditionalEstimate", "Terminal"]

#: Minimum effective number of paths of the integrated variance, and maximum deviation of its mean in standard errors.
_FEWEST_PATHS, _MAX_ERRORS = 30.0, 6.0
#: Rounding of an integrated variance, relative to its mean.
_ROUNDING = 1e-10
#: Paths whose prices are evaluated together; with only a hundred, call overhead would dominate.
_TOGETHER = 2048


class Terminal(NamedTuple):
    """Values of each path that determine the price of a European option, on the host."""

    spot: np.ndarray  # the part of S_T / F that the Brownian motion of the variance drives
    variance: np.ndarray  # integral of V
    stopped_spot: np.ndarray  # both where the integral of V would pass the level of the timer
    stopped_variance: np.ndarray


class ConditionalEstimate:
    """Sums over paths from which prices at one maturity are computed.

    Parameters
    ----------
    strikes : ndarray, shape (k,)
        Strikes.
    forward : float
        Forward price.
    rho : float
        Correlation of price and variance.
    mean_variance : float
        Mean of the integrated variance.
    level : float
        Integrated variance at which the timer option ends.
    """

    def __init__(self, strikes: np.ndarray, *, forward: float, rho: float, mean_variance: float, level: float) -> None:
        self._K, self._forward, self._rho = strikes, forward, rho
        self._mean_variance, self._level = mean_variance, level
        self._kinds = ["call" if strike / forward >= 1.0 else "put" for strike in strikes]
        self._timers = [
            float(_black(1.0, strike / forward, rho**2 * level, kind))
            for strike, kind in zip(strikes, self._kinds, strict=True)
        ]
        # Sums of (1, payoff, controls) times their transpose, for each strike, the number of paths in them, and pending
        # paths. The controls have mean 0. One tuple, so that an interrupt leaves complete chunks.
        self._state: tuple[np.ndarray, int, tuple[Terminal, ...]] = np.zeros((strikes.size, 5, 5)), 0, ()

    @property
    def paths(self) -> int:
        """Number of paths added."""
        return self._state[1] + self._waiting()

    def _waiting(self) -> int:
        return sum(part.spot.size for part in self._state[2])

    def add(self, found: Terminal) -> None:
        """Add paths."""
        sums, paths, parts = self._state
        self._state = sums, paths, (*parts, found)
        if self._waiting() >= _TOGETHER:
            self._settle()

    def _settle(self) -> None:
        """Evaluate the pending paths."""
        sums, paths, parts = self._state
        if not parts:
            return
        rho = self._rho
        at = parts[0] if len(parts) == 1 else Terminal(*map(np.concatenate, zip(*parts, strict=True)))
        columns = np.ones((at.spot.size, 5))
        columns[:, 2] = at.spot - 1.0
        columns[:, 3] = at.variance / self._mean_variance - 1.0
        products = np.empty_like(sums)
        each = zip(self._K / self._forward, self._kinds, self._timers, products, strict=True)
        for strike, kind, mean_timer, product in each:
            columns[:, 1] = _black(at.spot, strike, (1.0 - rho**2) * at.variance, kind)
            timer = _black(at.stopped_spot, strike, rho**2 * (self._level - at.stopped_variance), kind)
            columns[:, 4] = timer - mean_timer
            product[...] = columns.T @ columns
        self._state = sums + products, paths + at.spot.size, ()

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Undiscounted prices out of the money and their standard errors."""
        self._settle()
        sums, paths, _ = self._state
        K = self._K
        value, error = np.empty(K.size), np.empty(K.size)
        for number, moments in enumerate(sums):
            mean = moments[0, 1:] / paths
            covariance = moments[1:, 1:] / paths - np.outer(mean, mean)
            slopes = np.linalg.lstsq(covariance[1:, 1:], covariance[1:, 0], rcond=1e-12)[0]
            value[number] = mean[0] - slopes @ mean[1:]
            left = covariance[0, 0] - slopes @ covariance[1:, 0]
            error[number] = math.sqrt(max(left, 0.0) / max(paths - 1 - slopes.size, 1))
        return np.clip(self._forward * value, 0.0, np.minimum(self._forward, K)), self._forward * error

    def warn_of_few_paths(self, where: str) -> None:
        """Warn if a few paths dominate the integrated variance, so that standard errors are unreliable.

        The second control is that variance divided by its mean, minus 1.
        """
        self._settle()
        sums, paths, _ = self._state
        moments = sums[0]
        off, square = moments[0, 3], moments[3, 3]
        total, squares = paths + off, square + 2.0 * off + paths  # sums of the ratio itself, and of its square
        effective = total**2 / max(squares, 1e-300)
        spread = math.sqrt(max(square - off**2 / paths, 0.0))
        # A variance without randomness is off by rounding, and so is its spread.
        if effective < min(_FEWEST_PATHS, 0.25 * paths) or abs(off) > _MAX_ERRORS * spread + _ROUNDING * paths:
            warnings.warn(
                f"{where}: the integrated variance of {paths:,} paths has "
                f"{total / paths:.3g} times its known mean, from about {effective:.3g} of them; prices and their "
                "standard errors are unreliable; use more paths, a smaller eta, or a shorter maturity",
                AccuracyWarning,
                stacklevel=4,
            )


def _black(spot: Any, strike: float, total_variance: Any, kind: str) -> Any:
    return black_price(spot, strike, 1.0, np.sqrt(np.maximum(total_variance, 0.0)), kind)
