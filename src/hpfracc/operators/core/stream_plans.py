"""Streaming of the rules for uniform grids: their inputs, near and far weights, and the weights of the first samples.

Every such rule is ``y[n] = scale (sum_k w[k] u[n-k] + sum_i v_i S_i[n])``: a causal convolution of inputs u, which are
formed from the last few samples, plus weights of the first samples. The weights from lag ``WINDOW`` on are a power of
the lag times a series in its reciprocal: so a few decaying terms represent them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import Exponentials, exponential_sum
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, binomial, binomials, tangent_defect, trapezoid_defect
from hpfracc.operators.core.values import Samples, join, zeros
from hpfracc.operators.rules import l1, product, quadrature
from hpfracc.operators.rules.differences import (
    forward_differences,
    increments,
    repeated_differences,
    start_points,
)
from hpfracc.operators.rules.first_points import taylor_at_origin
from hpfracc.operators.rules.start import FittedStart, WithInitialTerms

Array = np.ndarray[Any, Any]

#: Lags whose weights are stored individually, and first samples that are kept until no value needs them.
WINDOW = 192
#: Largest lag for which the far weights meet their tolerance: some 35 years of samples at a kilohertz.
HORIZON = 2.0**40
#: Weights of ranges of lags that begin below this are computed from lag 0 on.
_EVERY = 4096
#: Terms of the expansion of the far weights in the reciprocal of the lag, and the lags from which it is fitted.
_TERMS, _FITTED = 6, 48


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The data that a stream needs of its rule.

    Attributes
    ----------
    inputs : callable
        Maps samples to the inputs at the same points; inputs depend on up to ``lookback`` earlier samples.
    weights : callable
        ``weights(begin, end)``: the weights of the lags from ``begin`` up to, but excluding, ``end``.
    far : Exponentials
        The weights from ``WINDOW`` on: ``far(m)`` is that of lag ``WINDOW + m``. Without terms in a plan without a
        tolerance.
    alternating : numpy.ndarray or None
        Weights, at the rates of ``far``, of the excess of even lags over the mean, which odd lags have with opposite
        sign.
    firsts : callable
        Maps the first ``WINDOW`` samples and the step to the numbers ``v_i``, each with one point along the last axis.
    start : callable
        Maps indices of points, at least ``WINDOW``, to the weights of these numbers: a list of arrays.
    scale : float
        The exponent of the step.
    near : numpy.ndarray
        The first ``WINDOW`` weights.
    """

    weights: Callable[[int, int], Array]
    far: Exponentials
    scale: float
    inputs: Callable[[Any], Any] = lambda x: x * 1
    lookback: int = 0
    alternating: Array | None = None
    firsts: Callable[[Any, float], list[Any]] = lambda head, step: []
    start: Callable[[Array], list[Array]] = lambda k: []
    near: Array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "near", self.weights(0, WINDOW))


def plan_stream(rule: Rule, order: Order, rtol: float | None, who: str, horizon: float = HORIZON) -> StreamPlan:
    """The plan of a rule; raises an error if it has none.

    Parameters
    ----------
    rule, order
        The rule and order to be streamed.
    rtol : float or None
        Relative error of the far weights; None for a plan without them, which also allows memory that does not decay.
    who : str
        The operator's name for errors.
    horizon : float
        Largest lag for which the far weights meet their tolerance.
    """
    alpha, n = float(order.value), order.ceiling
    if isinstance(rule, WithInitialTerms):
        plan = plan_stream(rule.rule, order, rtol, who, horizon)
        return _with_terms(
            plan, lambda head, step: taylor_at_origin(head, np.arange(start_points(n) + 1.0), n), alpha, range(n)
        )
    if isinstance(rule, FittedStart):
        # The effect of better derivatives at the origin, for orders above 1.
        plan, fitted = plan_stream(rule.rule, order, rtol, who, horizon), rule
        return _with_terms(
            plan,
            lambda head, step: fitted.coefficients(Samples(head, Grid(WINDOW, 0.0, step)), order),
            alpha,
            range(1, n),
        )
    if isinstance(rule, l1.UniformLType):
        return _increment_plan(rule, order, rtol, horizon)
    integral = isinstance(rule, product.Trapezoid | product.Simpson)
    if rtol is not None and (alpha >= 1.0 if integral else alpha <= -1.0):
        raise InvalidInputError(
            f"alpha={alpha:g}: the memory of {who} does not decay, so that no fixed state can hold it; stream the "
            "fractional part of the order and add up the values, step times each"
        )
    if isinstance(rule, quadrature.GrunwaldSum):
        return _binomial_plan(rule, order, rtol, horizon)
    if integral:
        return (_simpson_plan if isinstance(rule, product.Simpson) else _trapezoid_plan)(alpha, rtol, horizon)
    raise InvalidInputError(
        f"{who} by {rule.name!r} cannot be streamed; use one of the rules l1, l1-2, gl, wsgl, trapezoid or simpson"
    )


def _with_terms(plan: StreamPlan, more: Callable[[Any, float], list[Any]], alpha: float, powers: range) -> StreamPlan:
    """The plan with initial terms of the given powers, whose coefficients are ``more(head, step)``."""

    def start(j: Array) -> list[Array]:
        terms = [math.factorial(k) * float(NUMPY.rgamma(k + 1.0 - alpha)) * j ** (k - alpha) for k in powers]
        return [*plan.start(j), *terms]

    return replace(plan, firsts=lambda head, step: [*plan.firsts(head, step), *more(head, step)], start=start)


def _far_terms(
    beta: float, weights: Callable[[int, int], Array], rtol: float | None, horizon: float, every: int = 1
) -> Array:
    r"""Rates, and for each of ``every`` classes of lags the weights, of the terms that represent the far weights.

    A weight of lag k is :math:`k^{-\beta}` times a series in 1/k, which converges quickly from ``WINDOW`` on. It is
    fitted; each of its powers is the Laplace transform of a power of the rate times the measure of the first:
    :math:`\lambda^p` belongs to :math:`(\beta)_p\, k^{-\beta-p}`.
    """
    if rtol is None:
        return np.zeros((1 + every, 0))
    power = exponential_sum(beta, WINDOW - 1.0, horizon, rtol)
    lags = np.unique(np.geomspace(WINDOW, 64 * WINDOW, _FITTED).astype(int)) // every * every
    found = weights(WINDOW, int(lags[-1]) + every)
    scale = np.cumprod([1.0, *(1.0 / (beta + p) for p in range(_TERMS - 1))])
    rows = [power.rates]
    for k in (lags + i for i in range(every)):
        series = poly.polyfit(WINDOW / k, found[k - WINDOW] * k**beta, _TERMS - 1)
        growth = poly.polyval(WINDOW * power.rates, series * scale)
        rows.append(power.weights * np.exp(-power.rates * WINDOW) * growth)
    return np.stack(rows)


def _between(make: Callable[[int | Lags], Any], begin: int, end: int) -> Array:
    """The weights of a range of lags, by a function that computes those of all up to a length, or of a few."""
    if begin < _EVERY:
        return np.asarray(make(end))[..., begin:]
    return np.asarray(make(Lags(_EVERY, np.arange(begin, end, dtype=np.float64))))[..., _EVERY:]


def _increment_plan(rule: l1.UniformLType, order: Order, rtol: float | None, horizon: float) -> StreamPlan:
    """L1 and L1-2."""
    n = order.ceiling
    beta = float(order.value) - (n - 1)

    weights = partial(_between, lambda lags: rule.make(NUMPY, beta, lags)[0])
    plan = StreamPlan(
        weights=weights,
        far=Exponentials(*_far_terms(beta, weights, rtol, horizon)),
        scale=-float(order.value),
        inputs=lambda x: increments(x, n),
        lookback=1 if n == 1 else start_points(n) + 1,
    )
    if not isinstance(rule, l1.L12):
        return plan
    scale = float(NUMPY.rgamma(2.0 - beta))
    return replace(
        plan,
        firsts=lambda head, step: [increments(head, n)[..., 1:2]],
        start=lambda k: [-scale * np.asarray(trapezoid_defect(NUMPY, 1.0 - beta, k - 1.0, 4))],
    )


def _binomial_plan(rule: quadrature.GrunwaldSum, order: Order, rtol: float | None, horizon: float) -> StreamPlan:
    """Grünwald's sums of binomials with an upper number between -1 and 0."""
    alpha = float(order.value)
    m = max(order.ceiling, 0)
    shift = 0.5 * alpha if isinstance(rule, quadrature.WeightedGrunwald) else 0.0

    weights = partial(_between, lambda lags: rule.make(NUMPY, alpha, lags, m))

    def inputs(x: Any) -> Any:
        return join([zeros(x, m), repeated_differences(x, m)]) if m else x * 1

    def start(k: Array) -> list[Array]:
        return [_binomials_at(alpha - i - 1.0, k - i, shift) for i in range(m)]

    return StreamPlan(
        weights=weights,
        far=Exponentials(*_far_terms(1.0 + alpha - m, weights, rtol, horizon)),
        scale=-alpha,
        inputs=inputs,
        lookback=m,
        firsts=lambda head, step: forward_differences(head[..., :m]) if m else [],
        start=start,
    )


def _binomials_at(gamma: float, k: Array, shift: float) -> Array:
    last = np.asarray(binomials(NUMPY, gamma, 129))[-1]
    value = np.asarray(binomial(NUMPY, gamma, k, last))
    return value + shift * (value - np.asarray(binomial(NUMPY, gamma, k - 1.0, last))) if shift else value


def _trapezoid_plan(mu: float, rtol: float | None, horizon: float) -> StreamPlan:
    """Integrals of ``s^(mu-1)`` against hat functions."""
    weights = partial(_between, lambda lags: product.make_weights(NUMPY, mu, lags)[0])
    scale = float(NUMPY.rgamma(mu + 2.0))
    return StreamPlan(
        weights=weights,
        far=Exponentials(*_far_terms(1.0 - mu, weights, rtol, horizon)),
        scale=mu,
        firsts=lambda head, step: [head[..., :1]],
        start=lambda k: [-scale * np.asarray(tangent_defect(NUMPY, mu + 1.0, k, 9))],
    )


def _simpson_plan(mu: float, rtol: float | None, horizon: float) -> StreamPlan:
    """Integrals of ``s^(mu-1)`` against the three parabolas of a pair of intervals, by parity of the lag."""

    def weights(begin: int, end: int) -> Array:
        first = begin // 2
        rows = _between(lambda pairs: product.make_halves(NUMPY, mu, pairs)[0], first, (end + 1) // 2)
        return np.stack([rows[0], rows[2]], -1).reshape(-1)[begin - 2 * first : end - 2 * first]

    def start(k: Array) -> list[Array]:
        rows = product.make_halves(NUMPY, mu, Lags(2, k // 2))[0][:, 2:]
        return [np.where(k % 2, rows[i], rows[1] if i == 3 else 0.0) for i in (3, 4, 5)]

    rates, even, odd = _far_terms(1.0 - mu, weights, rtol, horizon, every=2)
    return StreamPlan(
        weights=weights,
        far=Exponentials(rates, 0.5 * (even + odd)),
        scale=mu,
        alternating=0.5 * (even - odd),
        firsts=lambda head, step: [head[..., i : i + 1] for i in range(3)],
        start=start,
    )
