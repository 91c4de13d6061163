"""Paths of price and variance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.process import read_grid

__all__ = ["RoughPaths", "Valuation", "join_chunks", "read_path_times"]


class Valuation(NamedTuple):
    """A value and its error, of the same shape.

    Attributes
    ----------
    value : ndarray or float
        The estimate.
    error : ndarray or float
        Its absolute error: one standard error for Monte Carlo methods, an estimate of the error otherwise.
    """

    value: Any
    error: Any


class RoughPaths(NamedTuple):
    """Paths of a rough volatility model.

    Attributes
    ----------
    t : ndarray, shape (n,)
        Times.
    S, V : ndarray, shape size + (n,)
        Price and variance.
    bias : float
        For :class:`~hpfracc.rough.Heston`: the largest error of implied volatilities that the steps cause, at the money
        and one standard deviation away, at the first and the last time. It is computed from the characteristic
        functions of scheme and model, so it has no statistical error. nan for :class:`~hpfracc.rough.Bergomi`, whose
        exact prices are unknown: repeat with more times.
    integral : ndarray, shape size + (n,)
        Integral of the variance from 0 on.
    """

    t: np.ndarray
    S: np.ndarray
    V: np.ndarray
    bias: float
    integral: np.ndarray

    def variance_swap(self, *, monitored: bool = False) -> Valuation:
        """Fair strike of a variance swap up to the last time, with its standard error.

        Parameters
        ----------
        monitored : bool
            Whether the variance is the sum of squared logarithmic returns between the times, not the integral.
        """
        total = (np.diff(np.log(self.S)) ** 2).sum(-1) if monitored else self.integral[..., -1]
        annual = total.ravel() / self.t[-1]
        return Valuation(float(annual.mean()), float(annual.std(ddof=1) / math.sqrt(annual.size)))


def read_path_times(t: Any, *, uniform: bool) -> np.ndarray:
    """Increasing times from 0 on as float64; equidistant if required."""
    grid = read_grid(t)
    if grid.times.size < 2 or grid.times[0] != 0.0:
        raise InvalidInputError("t has to have at least two increasing times from 0 on, such as linspace(0, 1, 253)")
    if uniform and grid.step is None:
        raise InvalidInputError("t is not equidistant; sample on linspace(0, T, n) and keep the times you need")
    return grid.times


def join_chunks(t: np.ndarray, shape: tuple[int, ...], chunks: list[tuple[np.ndarray, ...]], bias: float) -> RoughPaths:
    """Join chunks of paths into one array of the requested shape."""
    parts = zip(*(chunks or [3 * (np.empty((0, t.size)),)]), strict=True)
    price, variance, integral = (np.concatenate(each).reshape(*shape, t.size) for each in parts)
    return RoughPaths(t, price, variance, bias, integral)
