"""Prices by sampling: conditional Monte Carlo with controls, and barrier options with the error of their steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError, warn
from hpfracc.solvers.sde.noise.source import make_source
from hpfracc.solvers.sde.rough.black import black_price, intrinsic

#: Minimum effective number of paths of the integrated variance, and maximum deviation of its mean in standard errors.
_FEWEST_PATHS, _MAX_ERRORS = 30.0, 6.0
#: Rounding of an integrated variance, relative to its mean.
_ROUNDING = 1e-10


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

    def __init__(self, strikes: np.ndarray, forward: float, rho: float, mean_variance: float, level: float) -> None:
        self._K, self._forward, self._rho = strikes, forward, rho
        self._mean_variance, self._level = mean_variance, level
        self._kinds = ["call" if strike / forward >= 1.0 else "put" for strike in strikes]
        self._timers = [
            float(_black(1.0, strike / forward, rho**2 * level, kind))
            for strike, kind in zip(strikes, self._kinds, strict=True)
        ]
        # Sums of (1, payoff, controls) times their transpose, for each strike, and the number of paths in them. The
        # controls have mean 0. One tuple, so that an interrupt leaves complete chunks.
        self._state: tuple[np.ndarray, int] = np.zeros((strikes.size, 5, 5)), 0

    @property
    def paths(self) -> int:
        """Number of paths added."""
        return self._state[1]

    def add(self, at: Terminal) -> None:
        """Add paths."""
        (sums, paths), rho = self._state, self._rho
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
        self._state = sums + products, paths + at.spot.size

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Undiscounted prices out of the money and their standard errors."""
        (sums, paths), K = self._state, self._K
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
        sums, paths = self._state
        moments = sums[0]
        off, square = moments[0, 3], moments[3, 3]
        total, squares = paths + off, square + 2.0 * off + paths  # sums of the ratio itself, and of its square
        effective = total**2 / max(squares, 1e-300)
        spread = math.sqrt(max(square - off**2 / paths, 0.0))
        # A variance without randomness is off by rounding, and so is its spread.
        if effective < min(_FEWEST_PATHS, 0.25 * paths) or abs(off) > _MAX_ERRORS * spread + _ROUNDING * paths:
            warn(
                f"{where}: the integrated variance of {paths:,} paths has "
                f"{total / paths:.3g} times its known mean, from about {effective:.3g} of them; prices and their "
                "standard errors are unreliable; use more paths, a smaller eta, or a shorter maturity"
            )


def _black(spot: Any, strike: float, total_variance: Any, kind: str) -> Any:
    return black_price(spot, strike, 1.0, np.sqrt(np.maximum(total_variance, 0.0)), kind)


#: Paths that are sampled together.
_SAMPLED_TOGETHER = 1 << 13
#: The error of the steps, relative to its change if their number is halved: 1 / (2^p - 1) at the order p = 1/2, below
#: which neither model falls.
_REMAINDER = 1.0 / (math.sqrt(2.0) - 1.0)


class PathValuation(NamedTuple):
    """A value from sampled paths.

    Attributes
    ----------
    value : ndarray or float
        The estimate.
    error : ndarray or float
        ``statistical + discretisation``.
    statistical : ndarray or float
        One standard error.
    discretisation : ndarray or float
        Estimate of the error of the time steps: the change against the same paths with half as many steps, times 2.4.
    """

    value: Any
    error: Any
    statistical: Any
    discretisation: Any


def price_barrier(
    model: Any, K: Any, T: Any, level: Any, *, kind: str, knock: str, paths: int, steps: int, rng: Any
) -> PathValuation:
    """See :meth:`~hpfracc.solvers.sde.rough.model.VolatilityModel.barrier`."""
    _reading.choice("kind", kind, ("call", "put"))
    _reading.choice("knock", knock, ("out", "in"))
    strikes = _reading.numbers("K", K, least=0)
    maturity, barrier = _reading.number("T", T, above=0), _reading.number("level", level, above=0)
    count, number = _reading.count("paths", paths, least=16), _reading.count("steps", steps, least=16)
    if barrier == model.S0:
        raise InvalidInputError(f"level={level!r} is S0; use a barrier above or below it")
    if number % 2:
        raise InvalidInputError(f"steps={steps!r} is odd; use an even number, of which half is tried too")
    key = make_source(rng, None, count=count).on_host().key
    discount = math.exp(-model.r * maturity)
    rows: list[np.ndarray] = []
    bias = 0.0
    for low in range(0, count, _SAMPLED_TOGETHER):
        seed = np.random.SeedSequence(key.tolist())
        coupled, bias = model._coupled(maturity, number, min(_SAMPLED_TOGETHER, count - low), seed, low)
        columns = []
        for spot, variance in coupled:
            alive = _survival(np.log(spot / barrier), variance)
            payoff = intrinsic(spot[:, -1:], strikes.ravel(), kind)
            columns.append(discount * payoff * (alive if knock == "out" else 1.0 - alive)[:, None])
        spots = [spot[:, -1:] / float(model.forward(maturity)) - 1.0 for spot, _ in coupled]
        rows.append(np.concatenate([*columns, *spots], 1))
    fine, coarse, control, coarse_control = np.split(
        np.concatenate(rows), np.cumsum([strikes.size, strikes.size, 1]).tolist(), axis=1
    )
    value, statistical = _controlled(fine, control)
    change, _ = _controlled(fine - coarse, np.concatenate([control, coarse_control], 1))
    vega = model.S0 * math.sqrt(maturity / (2.0 * math.pi))
    discretisation = _REMAINDER * np.abs(change) + bias * vega
    found = value, statistical + discretisation, statistical, discretisation
    return PathValuation(*(each.reshape(strikes.shape)[()] for each in found))


def _survival(distance: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Probability that no bridge between two points of a path crosses 0, given the integrated variance of each step."""
    product = distance[:, :-1] * distance[:, 1:]
    inside = np.all(distance[:, :1] * distance > 0.0, axis=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        passed = -np.expm1(-2.0 * np.maximum(product, 0.0) / variance)
    return np.asarray(np.where(inside, passed.prod(axis=1), 0.0))


def _controlled(values: np.ndarray, controls: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of the columns, with controls of mean 0."""
    design = np.concatenate([np.ones((len(controls), 1)), controls], 1)
    weights = np.linalg.lstsq(design, values, rcond=1e-10)[0]
    left = values - design @ weights
    return weights[0], np.sqrt((left**2).sum(0) / (len(values) - design.shape[1]) / len(values))
