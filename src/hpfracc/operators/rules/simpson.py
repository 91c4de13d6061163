"""Product Simpson: quadratics over pairs of intervals under the Riemann-Liouville integral."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, final

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc._xp import NUMPY, Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.order_tables import WHOLE_TABLE, interleaved_weights
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, binomial_coefficients, power_sum
from hpfracc.operators.core.values import Samples
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.trapezoid import Trapezoid, convolve_from_start

__all__ = ["Simpson"]


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
    (parts,), key, factor = scaled_weights("simpson halves", _make_halves, order, samples, 1, few=True, points=half)
    return interleaved_weights(parts, 2, n), key, factor


def _make_halves(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any]:
    """Rows for each pair of lags 2i, 2i + 1: weights and first corrections at even lags, then those at odd lags.

    The corrections for the second and the third sample are 0 at even lags.
    """
    near = n if isinstance(n, int) else n.near
    weights, (first, second, third) = _make_weights(xp, mu, 2 * near)
    rows = [weights[0::2], first[0::2], *(row[1::2] for row in (weights, first, second, third))]
    if not isinstance(n, int):
        far = (*_even_tail(xp, mu, 2.0 * n.far), *_odd_tail(xp, mu, 2.0 * n.far + 1.0))
        rows = [xp.concatenate([one, other]) for one, other in zip(rows, far, strict=True)]
    return (xp.stack(rows),)


def _make_parities(xp: Namespace, mu: Any, n: int | Lags) -> tuple[Any, ...]:
    """The weights interpolated from even lags and from odd ones, and the corrections for the first three samples.

    The corrections are 0 at even lags. That of the first sample has both interpolants. Weights that are all computed
    directly use their own parity.
    """
    near = n if isinstance(n, int) else n.near
    weights, (first, second, third) = _make_weights(xp, mu, near)
    head = (weights, weights, first, first, second, third)
    if isinstance(n, int):
        return head
    (weights, first), (odd, *rest) = _even_tail(xp, mu, n.far), _odd_tail(xp, mu, n.far)
    tail = (weights, odd, first, *rest)
    return tuple(xp.concatenate([one, other]) for one, other in zip(head, tail, strict=True))


def _even_tail(xp: Namespace, mu: Any, k: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The weights, and the corrections for the first sample, at distant even lags, or interpolated from them."""
    scale = mu * xp.rgamma(mu + 1.0)
    bent, _, tilted = _pair_moments(10)
    later, earlier = ([_moments(xp, mu, k + shift, row) for row in (bent, tilted)] for shift in (1.0, -1.0))
    return (later[0] - later[1] + earlier[0] + earlier[1]) * scale, (later[1] - later[0]) * scale


def _odd_tail(xp: Namespace, mu: Any, k: np.ndarray[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """The weights, and the corrections for the first three samples, at distant odd lags, or interpolated from them."""
    scale = mu * xp.rgamma(mu + 1.0)
    bent, flat, tilted = (_moments(xp, mu, k, row) for row in _pair_moments(10))
    q = [part[1:] for part in _first_interval(xp, mu, np.concatenate([[1.0], k]))]
    return (
        flat * scale,
        q[0] * (scale / mu) - flat * scale,
        q[1] * (scale / mu) - (bent - tilted) * scale,
        q[2] * (scale / mu),
    )


def _make_weights(xp: Namespace, mu: Any, n: int) -> tuple[Any, Any]:
    """The weights, and the corrections for the first three samples, one row each, unused before its sample."""
    newest, middle, oldest = _pairs(xp, mu, n // 2 + 2)
    scale = xp.rgamma(mu + 1.0)
    zero = xp.array([0.0])
    even = newest + xp.concatenate([zero, oldest[:-1]])
    weights = _interleave(xp, even, middle, n)

    # There is no pair before the first sample: subtract the weight that the convolution assigns to it.
    pairs = (n + 3) // 2
    c, b = newest[:pairs], middle[:pairs]
    odd = np.arange(1, 2 * pairs, 2, dtype=np.float64)
    q0, q1, q2 = _first_interval(xp, mu, odd)
    first = _interleave(xp, -c, q0 - b, n)
    second = _interleave(xp, 0.0 * c, q1 - c, n)
    third = _interleave(xp, 0.0 * c, q2, n)
    return weights * scale, xp.stack([first, second, third]) * scale


def first_weights(mu: float, k: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
    """Corrections for the first three samples at given points k >= 65, without the factor ``1 / Gamma(mu + 1)``."""
    centre = 2.0 * (k // 2) + 1.0
    bent, flat, tilted = (mu * _moments(NUMPY, mu, centre, row) for row in _pair_moments(10))
    q0, q1, q2 = (part[1:] for part in _first_interval(NUMPY, mu, np.concatenate([[1.0], k])))
    odd = k % 2 == 1
    newest = bent - tilted
    return np.where(odd, q0 - flat, -newest), np.where(odd, q1 - newest, 0.0), np.where(odd, q2, 0.0)


def _pair_moments(terms: int) -> tuple[list[float], list[float], list[float]]:
    """Moments about the middle of a pair of its three basis quadratics."""
    return (
        [1.0 / (j + 3) if j % 2 == 0 else 0.0 for j in range(terms)],
        [2.0 / (j + 1) - 2.0 / (j + 3) if j % 2 == 0 else 0.0 for j in range(terms)],
        [1.0 / (j + 2) if j % 2 == 1 else 0.0 for j in range(terms)],
    )


def _interleave(xp: Namespace, even: Any, odd: Any, n: int) -> Any:
    size = min(even.shape[0], odd.shape[0])
    joined: Any = xp.concatenate([even[:size].reshape(-1, 1), odd[:size].reshape(-1, 1)], 1)
    return joined.reshape(-1)[:n]


def _pairs(xp: Namespace, mu: Any, count: int) -> tuple[Any, Any, Any]:
    """``mu`` times ``C_i, B_i, A_i`` for i = 0 .. count-1: finite for mu = 0, the limit of the rule from above."""
    m0, m1, m2 = (xp.exp((mu + j) * np.log(2.0)) * (mu / (mu + j) if j else 1.0) for j in range(3))
    one = xp.array([1.0])
    head = [(one * m2 - 3.0 * m1 + 2.0 * m0) / 2.0, one * (2.0 * m1 - m2), one * (m2 - m1) / 2.0]
    parts: list[list[Any]] = [[value] for value in head]
    # 1/centre is at most 1/3, and 1/65 from i = 32 on.
    for low, high, terms in ((1, min(count, 32), 38), (32, max(count, 32), 10)):
        centre = 2.0 * np.arange(low, max(high, low), dtype=np.float64) + 1.0
        bent, flat, tilted = (mu * _moments(xp, mu, centre, row) for row in _pair_moments(terms))
        for part, value in zip(parts, (bent - tilted, flat, bent + tilted), strict=True):
            part.append(value)
    c, b, a = (xp.concatenate(part)[:count] for part in parts)
    return c, b, a


def _first_interval(xp: Namespace, mu: Any, k: np.ndarray[Any, Any]) -> tuple[Any, Any, Any]:
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


def _moments(xp: Namespace, mu: Any, centre: np.ndarray[Any, Any], moments: list[float]) -> Any:
    """The integral of ``(centre + u)^(mu - 1)`` times a function with these moments, by the binomial series."""
    factors = binomial_coefficients(xp, mu - 1.0, len(moments)) * xp.array(moments)
    return xp.power(centre, mu - 1.0) * power_sum(xp, 1.0 / centre, factors)
