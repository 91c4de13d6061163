"""Atangana-Baleanu: interpolated samples under a Mittag-Leffler kernel."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, final

import numpy as np
from numpy.polynomial import legendre

from hpfracc._arrays import library_of, to_host
from hpfracc._xp import NUMPY, Namespace, of_variables
from hpfracc.engine.execution.api import unlogged
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.sequences import power_differences, trapezoid_defect
from hpfracc.operators.core.values import Samples, constant, weights_key, weights_of
from hpfracc.operators.rules.bounded_kernel import (
    FIRST,
    ConvolutionMemory,
    double_exponential,
    exponential_mean,
    exponential_tilt,
    on_step,
    tabulate,
)
from hpfracc.operators.rules.l1 import with_parabolas
from hpfracc.special import mittag_leffler

#: Gauss points of one interval: for l >= 8 their error is below rounding.
_GAUSS = 6
#: The interval of the double exponential rule, outside which the integrand is negligible, and its number of points.
#: With 2048 points the measured error is below 1e-13 for alpha >= 0.05; below, their number must grow like 1/alpha.
_WIDTH, _MIN_POINTS, _POINTS = 3.6, 512, 110.0
#: Terms of the expansion at order 1: enough for derivatives up to the third there.
_ORDERS_AT_ONE = 4
#: Maximum number of points. For orders that would need more, a series is used up to this argument, with this number of
#: terms.
_MAX_POINTS = 2**16
_SMALL, _TERMS = 0.5, 56
#: Smallest traced order. Its value is unknown when the number of points is chosen.
MIN_TRACED = 0.05


@final
class MittagLefflerMemory(ConvolutionMemory):
    r"""The integral of f' against :math:`E_\alpha(-c\,(t-s)^\alpha)/(1-\alpha)`, :math:`c = \alpha/(1-\alpha)`.

    .. math::
        D^\alpha f(t_k) \approx \frac{1}{1-\alpha} \Big[ \sum_{j=1}^{k} a_{k-j}\,\delta_j
        + \sum_{j=2}^{k} b_{k-j}\,(\delta_j - \delta_{j-1}) \Big], \quad \delta_j = f_j - f_{j-1},

    with the kernel's means :math:`a_l = (l+1) E_{\alpha,2}(-c\,((l+1)h)^\alpha) - l\,E_{\alpha,2}(-c\,(lh)^\alpha)` and
    tilts :math:`b_l` (by :math:`E_{\alpha,3}` likewise). Without the second sum f is interpolated linearly (order 2,
    ``"linear"``), with it quadratically (order 3, ``"quadratic"``). The order holds at every point after the first, for
    f with that many continuous derivatives. Exactly zero on constants.

    A plain order uses the Mittag-Leffler function itself. A differentiable order or step uses

    .. math:: E_\alpha(-c\,t^\alpha) = \frac{1}{\pi\alpha} \int_0^{\pi\alpha} e^{-r(\theta)\,t}\,d\theta, \quad
        r = \Big(\frac{c \sin\theta}{\sin(\pi\alpha-\theta)}\Big)^{1/\alpha},

    by a double exponential rule, which has derivatives of every order; the two agree to about 1e-13. At alpha = 1 the
    rule is its limit from below, with the one-sided derivatives (up to the third) of that limit.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769; the integral: R. Gorenflo, F. Mainardi, in *Fractals and
    Fractional Calculus in Continuum Mechanics*, 1997.
    """

    def weights(self, samples: Samples, order: Order) -> tuple[tuple[Any, ...], Hashable]:
        """By the function itself, or by the integral."""
        return _weights(samples, order, self.name)


def kernel_at_points(samples: Samples, order: Order) -> Any:
    """``E_alpha(-c t^alpha) / (1 - alpha)`` at the points of the grid, in a form that multiplies samples."""
    (kernel,), key = _weights(samples, order, "kernel")
    return constant(kernel, samples.values, key)


def _weights(samples: Samples, order: Order, use: str) -> tuple[tuple[Any, ...], Hashable]:
    """The required quantities of the kernel over 1 - alpha, and the cache key of a plain order and step."""
    n, step = samples.n, samples.grid.step
    order = on_step(order, step)
    xp = order.xp
    if order.plain:
        step = float(to_host(step))
        scheme = ("mittag-leffler", use, step)
        made = weights_of(
            scheme, lambda xp, alpha, n: _put(xp, use, _by_function(alpha, step, n), 1.0 - alpha), order, n
        )
        return made, weights_key(scheme, order, n)

    def make(alpha: Any, step: Any) -> tuple[Any, ...]:
        return _put(xp, use, _guarded(order, alpha, step, n), 1.0)

    with xp.scope():
        if library_of(step) in ("numpy", "python"):
            return of_variables(xp, lambda alpha: make(alpha, step))(order.value), None
        return of_variables(xp, make)(order.value, xp.array(step)), None


def _put(xp: Namespace, use: str, moments: tuple[Any, ...], divisor: Any) -> tuple[Any, ...]:
    """Weights of the increments and, if quadratic, the correction for the first one; or the kernel itself."""
    means, tilts, kernel = moments
    if use == "kernel":
        return (kernel / divisor,)
    if use == "linear":
        return (means / divisor,)
    weights, first = with_parabolas(xp, means, tilts)
    return weights / divisor, first.reshape(1, -1) / divisor


def _guarded(order: Order, alpha: Any, step: Any, n: int) -> tuple[Any, ...]:
    """Means, tilts and point values over 1 - alpha, differentiable; nan if a traced order is out of range."""
    xp = order.xp
    if order.known == 1.0:
        return _at_one(xp, alpha, step, n)
    inside, one = alpha, None
    if order.known is None:
        # The case is not known at trace time: both are computed, each where it is defined.
        one = alpha == 1.0
        inside = xp.where((alpha >= MIN_TRACED) & (alpha < 1.0), alpha, 0.5)
    known = MIN_TRACED if order.known is None else order.known
    if known < MIN_TRACED and known / (1.0 - known) * _reach(step, n) ** known < _SMALL:
        return _by_series(xp, alpha, step, n)
    points = max(_MIN_POINTS, math.ceil(_POINTS / known))
    if points > _MAX_POINTS:
        raise InvalidInputError(
            f"alpha={known:g} is too small to be differentiable for times up to {_reach(step, n):g}; "
            f"use an order of at least {_POINTS / _MAX_POINTS:.2g}, or a number"
        )
    found = tabulate(xp, lambda at: _by_integral(xp, inside, step, at, points), n)
    found = tuple(array / (1.0 - inside) for array in found)
    if one is None:
        return found
    means, tilts, kernel = _at_one(xp, xp.where(one, alpha, 1.0), step, n)
    # The kernel is unbounded at the origin.
    limits = (means, tilts, kernel + xp.array([math.inf, *np.zeros(n - 1)]))
    served = one | (inside == alpha)
    return tuple(
        xp.where(served, xp.where(one, limit, array), math.nan) for limit, array in zip(limits, found, strict=True)
    )


def _reach(step: Any, n: int) -> float:
    """The longest time; infinite if the step is traced."""
    known = known_values(step)
    return math.inf if known is None else n * float(known)


def _by_series(xp: Namespace, alpha: Any, step: Any, n: int) -> tuple[Any, ...]:
    """The same by the Taylor series in ``c t^alpha``, which is small if alpha is, for any t."""
    pace = alpha / (alpha - 1.0) * xp.exp(alpha * xp.log(xp.array(step)))
    means, tilts, kernel = _of_powers(xp, [(pace**k / (1.0 - alpha), k * alpha) for k in range(_TERMS)], n)
    return means, tilts, kernel + xp.array(np.eye(1, n)[0]) / (1.0 - alpha)


def _at_one(xp: Namespace, alpha: Any, step: Any, n: int) -> tuple[Any, ...]:
    r"""The same at alpha = 1, where the kernel is infinitely narrow, with one-sided derivatives.

    Uses the expansion of the Mittag-Leffler function at infinity, in which term k over :math:`1-\alpha` is

    .. math:: (-1)^k \frac{(1-\alpha)^k}{\alpha^{k+1}} \frac{t^{-p}}{\Gamma(1-p)}, \quad p = (k+1)\alpha :

    at alpha = 1 all but the first vanish, to order k + 1 in 1 - alpha (k in the tilt of the newest interval).
    """
    terms = []
    for k in range(_ORDERS_AT_ONE):
        p = (k + 1.0) * alpha
        terms.append(((alpha - 1.0) ** k / alpha ** (k + 1.0) * xp.exp(-p * xp.log(xp.array(step))), -p))
    return _of_powers(xp, terms, n)


def _of_powers(xp: Namespace, terms: list[tuple[Any, Any]], n: int) -> tuple[Any, ...]:
    """Means, tilts and point values of ``sum size l^p / Gamma(p + 1)``; without the value at l = 0."""
    means, tilts, kernel = (xp.array(np.zeros(n)) for _ in range(3))
    far = np.arange(1.0, n)
    for size, p in terms:
        scale = xp.rgamma(p + 2.0)
        means = means + size * scale * power_differences(xp, p + 1.0, n)
        newest = (xp.rgamma(p + 3.0) - 0.5 * scale) * xp.array([1.0])
        tilts = tilts + size * xp.concatenate([newest, scale * trapezoid_defect(xp, p + 1.0, far, 17)])
        kernel = kernel + size * xp.concatenate([xp.array([0.0]), xp.rgamma(p + 1.0) * xp.power(far, p)])
    return means, tilts, kernel


def _by_function(alpha: float, step: float, n: int) -> tuple[Any, ...]:
    """Means, tilts and point values; the first by closed forms, because near order 1 the kernel ends within a step."""
    c = alpha / (1.0 - alpha)
    nodes, gauss = legendre.leggauss(_GAUSS)
    v = 0.5 * (1.0 + nodes)

    def function(beta: float, at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(mittag_leffler(-c * (at * step) ** alpha, alpha, beta, backend="numpy"))

    def evaluate(at: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        near, far = at[at < FIRST], at[at >= FIRST]
        edges = np.arange(len(near) + 1, dtype=np.float64)
        first, second = edges * function(2.0, edges), edges**2 * function(3.0, edges)
        mean = np.diff(first)
        tilt = np.diff(second) - 0.5 * (first[1:] + first[:-1])
        inside = function(1.0, (far[:, None] + v).reshape(-1)).reshape(-1, _GAUSS) * (0.5 * gauss)
        return (
            np.concatenate([mean, inside.sum(axis=1)]),
            np.concatenate([tilt, inside @ (0.5 - v)]),
            function(1.0, at),
        )

    with unlogged():
        return tabulate(NUMPY, evaluate, n)


def _by_integral(xp: Namespace, alpha: Any, step: Any, at: np.ndarray[Any, Any], points: int) -> tuple[Any, ...]:
    """The same by the integral over decay rates r, each with an exponential kernel."""
    left, right, weights = double_exponential(points, _WIDTH)
    weight = xp.array(weights.reshape(-1, 1))
    angle = math.pi * alpha
    rates = (
        xp.log(alpha / (1.0 - alpha)) + xp.log(xp.sin(angle * xp.array(left))) - xp.log(xp.sin(angle * xp.array(right)))
    ) / alpha
    # Clipped where the exponential is 1 or 0 at all times.
    rates = rates + xp.log(xp.array(step))
    rates = xp.where(rates > 300.0, 300.0, xp.where(rates < -300.0, -300.0, rates))
    z = xp.exp(rates).reshape(1, -1)
    decay = xp.exp(-xp.array(at.reshape(-1, 1)) * z)
    return tuple(
        xp.matmul(decay * factor, weight)[:, 0] for factor in (exponential_mean(xp, z), exponential_tilt(xp, z), 1.0)
    )
