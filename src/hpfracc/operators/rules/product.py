"""Product rules: piecewise linear and quadratic interpolation under the Riemann-Liouville integral."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, final

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc._xp import Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.order_tables import WHOLE_TABLE, interleaved_weights
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import (
    Lags,
    binomial_coefficients,
    count_of,
    long_run,
    power_sum,
    previous,
    second_differences,
    tangent_defects,
)
from hpfracc.operators.core.values import Samples, constant, scaled_weights


@final
class Trapezoid(Rule):
    r"""Riemann-Liouville integral of the piecewise linear interpolant.

    .. math::
        I^\mu f(t_k) \approx \frac{h^\mu}{\Gamma(\mu+2)} \Big[ u_k f_0 + \sum_{j=1}^{k} w_{k-j} f_j \Big], \quad
        w_0 = 1,\; w_l = (l+1)^{\mu+1} - 2 l^{\mu+1} + (l-1)^{\mu+1},\;
        u_k = (k-1)^{\mu+1} - (k-1-\mu) k^\mu .

    Order 2 for f with two continuous derivatives, at every point; exact on straight lines.

    References
    ----------
    K. Diethelm, N. J. Ford, A. D. Freed, Numer. Algorithms 36 (2004) 31-52.
    """

    usual_accuracy = 2.0
    least = 2
    name = "trapezoid"
    one_call = True

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the samples; the first one has additional weights."""
        (weights, starts), key, factor = scaled_weights(self.name, make_weights, order, samples, 1, few=True)
        return convolve_from_start(samples, order, weights, starts, key, factor)


def convolve_from_start(samples: Samples, order: Order, weights: Any, starts: Any, key: Hashable, factor: Any) -> Any:
    """The causal convolution of an integral's weights with the samples, the first of which have additional weights."""
    with order.xp.scope():
        weights = order.guard_integral(weights)
    signal = samples.values if factor is None else samples.values * factor
    starts = constant(starts, samples.values, None if key is None else (key, "starts"))
    return samples.convolve(weights, signal, key, starts)


def make_weights(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any, Any]:
    """The weights of the samples, and the correction for the first one."""
    scale = xp.rgamma(mu + 2.0)
    weights = second_differences(xp, mu + 1.0, n)
    # u_k - w_k = (mu + 1) k^mu - ((k+1)^(mu+1) - k^(mu+1))
    excess = -tangent_defects(xp, mu + 1.0, n)
    return weights * scale, (xp.concatenate([xp.array([-1.0]), excess[1:]]) * scale).reshape(1, -1)


@final
class Simpson(Rule):
    r"""Riemann-Liouville integral of a piecewise quadratic interpolant.

    Counting back from :math:`t_k`, each pair of intervals has the quadratic through its three points. If the number of
    intervals is odd, the first one has the quadratic through the first three samples:

    .. math:: I^\mu f(t_k) \approx \frac{h^\mu}{\Gamma(\mu)} \sum_i \big[ C_i f_{k-2i} + B_i f_{k-2i-1} + A_i f_{k-2i-2}
        \big], \quad (C, B, A)_i = \int_{-1}^{1} (2i+1+u)^{\mu-1} \Big(\tfrac{u(u-1)}{2}, 1-u^2, \tfrac{u(u+1)}{2}\Big)
        du.

    Order :math:`\min(4, 3+\mu)` at a fixed t for f with four continuous derivatives: the error of a quadratic is odd
    about the middle of its pair and cancels under a smooth kernel, except on the last pair. Exact on quadratics from
    the second point on; the first point uses linear interpolation.

    References
    ----------
    P. Kumar, O. P. Agrawal, Signal Processing 86 (2006) 2602-2610.
    """

    least = 3
    name = "simpson"
    one_call = True
    companion = Trapezoid()

    def accuracy(self, alpha: float) -> float:
        """``min(4, 3 + mu)``."""
        return min(4.0, 3.0 + alpha)

    def measured_from(self, order: Order) -> int:
        """Two, the end of the first quadratic."""
        return 2

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the samples; the first three have additional weights."""
        (weights, starts), key, factor = _scaled(samples, order)
        return convolve_from_start(samples, order, weights, starts, key, factor)


def _scaled(samples: Samples, order: Order) -> tuple[tuple[Any, Any], Hashable, Any]:
    """The weights and the corrections for the first three samples, by :func:`scaled_weights`."""
    n = samples.n
    if n <= WHOLE_TABLE or order.xp.library != "torch":
        (weights, starts), key, factor = scaled_weights("simpson", _make_weights, order, samples, 1)
        return (weights, starts), key, factor
    # The weights at even and at odd lags are two smooth sequences, and each needs its own table.
    half = (n + 1) // 2
    (parts,), key, factor = scaled_weights("simpson halves", make_halves, order, samples, 1, few=True, points=half)
    return interleaved_weights(parts, 2, n), key, factor


def make_halves(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any]:
    """Rows at the pairs of lags 2i, 2i + 1: weights and corrections for the first sample at the even lags.

    Then, at the odd lags, weights and corrections for the first three samples, those of the second and third being 0 at
    even lags. There is no pair before the first sample, so that the weights that the convolution assigns to the first
    samples are subtracted.
    """
    newest, middle, oldest = _pairs(xp, mu, n)
    last = oldest[:-1] if isinstance(n, int) else _pairs(xp, mu, previous(n))[2]
    q0, q1, q2 = _first_interval(xp, mu, 2.0 * long_run(xp, 0, n) + 1.0)
    even = [newest + xp.concatenate([xp.array([0.0]), last]), -newest]
    return (xp.stack([*even, middle, q0 - middle, q1 - newest, q2]) * xp.rgamma(mu + 1.0),)


def _make_weights(xp: Namespace, mu: Any, n: int) -> tuple[Any, Any]:
    """The weights, and the corrections for the first three samples, one row each, unused before its sample."""
    rows = make_halves(xp, mu, (n + 1) // 2)[0]
    even = xp.concatenate([rows[:2], 0.0 * rows[:2]])
    whole = xp.stack([even, rows[2:]], -1).reshape(4, -1)[:, :n]
    return whole[0], whole[1:]


def _pair_moments(terms: int) -> tuple[list[float], list[float], list[float]]:
    """Moments about the middle of a pair of its three basis quadratics."""
    return (
        [1.0 / (j + 3) if j % 2 == 0 else 0.0 for j in range(terms)],
        [2.0 / (j + 1) - 2.0 / (j + 3) if j % 2 == 0 else 0.0 for j in range(terms)],
        [1.0 / (j + 2) if j % 2 == 1 else 0.0 for j in range(terms)],
    )


def _pairs(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any, ...]:
    """``mu`` times ``C_i, B_i, A_i`` at all i: finite for mu = 0, the limit of the rule from above."""
    m0, m1, m2 = (xp.exp((mu + j) * np.log(2.0)) * (mu / (mu + j) if j else 1.0) for j in range(3))
    one = xp.array([1.0])
    parts = [[(one * m2 - 3.0 * m1 + 2.0 * m0) / 2.0], [one * (2.0 * m1 - m2)], [one * (m2 - m1) / 2.0]]
    # 1/centre is at most 1/3, and 1/65 from i = 32 on.
    near = np.arange(1.0, min(n if isinstance(n, int) else n.near, 32))
    for i, terms in ((near, 38), (long_run(xp, 32, max(n, 32) if isinstance(n, int) else n), 10)):
        bent, flat, tilted = (mu * _moments(xp, mu, 2.0 * i + 1.0, row) for row in _pair_moments(terms))
        for part, value in zip(parts, (bent - tilted, flat, bent + tilted), strict=True):
            part.append(value)
    return tuple(xp.concatenate(part)[: count_of(n)] for part in parts)


def _first_interval(xp: Namespace, mu: Any, k: Any) -> tuple[Any, Any, Any]:
    """``mu`` times the weights of the first three samples on the first interval, at odd k; linear at k = 1."""
    line = (mu / (mu + 1.0), 1.0 / (mu + 1.0), 0.0 * mu)
    lagrange = ([1.0, -1.5, 0.5], [0.0, 2.0, -1.0], [0.0, -0.5, 0.5])  # in rising powers of the position
    found = []
    for at_one, coefficients in zip(line, lagrange, strict=True):
        # Position x = 1/2 - u, distance k - x = (k - 1/2) + u.
        shifted: np.ndarray[Any, Any] = np.zeros(1)
        for factor in reversed(coefficients):
            shifted = poly.polyadd(poly.polymul(shifted, [0.5, -1.0]), [factor])
        moments = [_even_integral(poly.polymul(shifted, np.eye(1, j + 1, j)[0])) for j in range(26)]
        rest = mu * _moments(xp, mu, k[1:] - 0.5, moments)
        found.append(xp.concatenate([xp.array([1.0]) * at_one, rest]))
    return found[0], found[1], found[2]


def _even_integral(coefficients: np.ndarray[Any, Any]) -> float:
    """The integral of a polynomial from -1/2 to 1/2."""
    antiderivative = poly.polyint(coefficients)
    return float(poly.polyval(0.5, antiderivative) - poly.polyval(-0.5, antiderivative))


def _moments(xp: Namespace, mu: Any, centre: Any, moments: list[float]) -> Any:
    """The integral of ``(centre + u)^(mu - 1)`` times a function with these moments, by the binomial series."""
    factors = binomial_coefficients(xp, mu - 1.0, len(moments)) * xp.array(moments)
    return xp.power(centre, mu - 1.0) * power_sum(xp, 1.0 / centre, factors)
