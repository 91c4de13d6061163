"""Barrier options by sampling, with the statistical error and that of the time steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from hpfracc import _reading
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.sde.noise.source import make_source
from hpfracc.solvers.sde.rough.black import check_kind

__all__ = ["PathValuation", "price_barrier"]

#: Paths that are sampled together.
_TOGETHER = 1 << 13
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
    """See :meth:`~hpfracc.solvers.sde.rough.smile.VolatilityModel.barrier`."""
    check_kind(kind)
    _reading.choice("knock", knock, ("out", "in"))
    strikes = _reading.numbers("K", K, least=0)
    maturity, barrier = _reading.number("T", T, above=0), _reading.number("level", level, above=0)
    count, number = _reading.whole("paths", paths, least=16), _reading.whole("steps", steps, least=16)
    if barrier == model.S0:
        raise InvalidInputError(f"level={level!r} is S0; use a barrier above or below it")
    if number % 2:
        raise InvalidInputError(f"steps={steps!r} is odd; use an even number, of which half is tried too")
    key = make_source(rng, None, count=count).on_host().key
    sign = 1.0 if kind == "call" else -1.0
    discount = math.exp(-model.r * maturity)
    rows: list[np.ndarray] = []
    bias = 0.0
    for low in range(0, count, _TOGETHER):
        seed = np.random.SeedSequence(key.tolist())
        coupled, bias = model._coupled(maturity, number, min(_TOGETHER, count - low), seed, low)
        columns = []
        for spot, variance in coupled:
            alive = _survival(np.log(spot / barrier), variance)
            payoff = np.maximum(sign * (spot[:, -1:] - strikes.ravel()), 0.0)
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
