"""Sequences from which weights are computed, with full precision at any length.

Written out, each is a small difference of large powers: at k = 1e5 a second difference has lost six digits and the
defect of the trapezoidal rule ten. Here they are products with ``expm1`` and ``log1p``, or series without cancellation.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._reading import number
from hpfracc._xp import NUMPY, Namespace
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.order import read_order

#: From this k on a series in 1/k needs few terms.
_HEAD = 64
#: Powers of 1/k up to this k are cached.
_RECIPROCALS = 512
#: The last binomial computed by the recurrence.
_RECURRED = 128

#: Numbers up to this count are computed on the host; more are computed where they are used.
_FEW = 4096


@dataclass(frozen=True)
class Lags:
    """Lags 0, 1, ..., ``near - 1`` and those in ``far``, which need not be integers."""

    near: int
    far: np.ndarray[Any, Any]


def count_of(n: int | Lags) -> int:
    """Number of lags."""
    return n if isinstance(n, int) else n.near + len(n.far)


def previous(n: int | Lags) -> int | Lags:
    """The lag before each of them, except for the first."""
    return n - 1 if isinstance(n, int) else Lags(n.near - 1, n.far - 1.0)


def long_run(xp: Namespace, first: int, n: int | Lags) -> Any:
    """Lags from ``first`` on: a NumPy array if they are few, else one of ``xp`` on its device."""
    if not isinstance(n, int):
        return np.concatenate([np.arange(first, n.near, dtype=np.float64), n.far])
    if xp.library in ("numpy", "cupy") or n - first <= _FEW:
        return np.arange(first, n, dtype=np.float64)
    return xp.arange(first, n, "float64")


def _numbers(first: int, stop: int) -> np.ndarray[Any, Any]:
    return np.arange(first, stop, dtype=np.float64)


def _head(n: int | Lags, most: int) -> int:
    """The number of leading lags below ``most``."""
    return min(count_of(n), most)


def _of_numbers(xp: Namespace, function: str, x: Any) -> Any:
    """A function of numbers without gradients: on the host if they are there, or on their own device."""
    return xp.array(getattr(np, function)(x)) if isinstance(x, np.ndarray) else getattr(xp, function)(x)


def binomial_coefficients(xp: Namespace, p: Any, count: int) -> Any:
    """``binom(p, j)`` for j below a small ``count``."""
    j = xp.array(_numbers(1, count))
    return xp.cumprod(xp.concatenate([xp.array([1.0]), (p - (j - 1.0)) / j]))


def power_sum(xp: Namespace, z: Any, coefficients: Any) -> Any:
    """``sum_j coefficients[..., j] z^j`` at every z, along a new last axis.

    For few points by one product with a table, which a compiler of traced code treats as one operation; for many by
    Horner's scheme, which needs no table.
    """
    count = coefficients.shape[-1]
    if isinstance(z, np.ndarray) and len(z) <= 2 * _RECURRED:
        return xp.matmul(coefficients, xp.array(z[None, :] ** np.arange(count)[:, None]))
    at = xp.array(z)
    total = 0.0 * at + coefficients[..., count - 1 : count]
    for j in range(count - 2, -1, -1):
        total = total * at + coefficients[..., j : j + 1]
    return total


def power_differences(xp: Namespace, p: Any, n: int | Lags) -> Any:
    """``(k + 1)^p - k^p`` for k = 0 .. n-1 and p > 0; 1, 0, 0, ... in the limit p = 0."""
    return xp.concatenate([xp.array([1.0]), power_difference(xp, p, long_run(xp, 1, n))])


def power_difference(xp: Namespace, p: Any, k: Any) -> Any:
    """``(k + 1)^p - k^p`` at given k >= 1."""
    return xp.power(k, p) * xp.expm1(p * _of_numbers(xp, "log1p", 1.0 / k))


def second_differences(xp: Namespace, p: Any, n: int | Lags) -> Any:
    """``(k + 1)^p - 2 k^p + (k - 1)^p`` for k = 1 .. n-1 after a leading 1, for p >= 1."""
    head = [xp.array([1.0]), (2.0 * xp.expm1((p - 1.0) * xp.array([np.log(2.0)])))]
    return xp.concatenate([*head, second_difference(xp, p, long_run(xp, 2, n))])[: count_of(n)]


def second_difference(xp: Namespace, p: Any, k: Any) -> Any:
    """``(k + 1)^p - 2 k^p + (k - 1)^p`` at given k >= 2.

    With ``x = 1/k``: ``k^p ((1+x)^p + (1-x)^p - 2)``, and the sum is ``2 e^m cosh(d) - 2`` with
    ``m = p log(1 - x^2) / 2`` and ``d = p artanh(x)``.
    """
    x = 1.0 / k
    half = 0.5 * p * _of_numbers(xp, "log1p", -x * x)
    spread = p * _of_numbers(xp, "arctanh", x)
    bulge = 2.0 * xp.sinh(0.5 * spread) ** 2
    return 2.0 * xp.power(k, p) * (xp.expm1(half) * (1.0 + bulge) + bulge)


def tangent_defects(xp: Namespace, p: Any, n: int | Lags) -> Any:
    """``(k + 1)^p - k^p - p k^(p-1)`` for k = 0 .. n-1 and p > 1; 1 at k = 0."""
    # While it is not small a plain difference suffices: with q = p - 1, k^q ((k + 1) ((1 + 1/k)^q - 1) - q) loses at
    # most one digit, however close p is to 1.
    total = count_of(n)
    k, q = _numbers(1, min(total, 8)), p - 1.0
    growth = xp.expm1(q * xp.array(np.log1p(1.0 / k)))
    parts = [xp.array([1.0]), xp.power(k, q) * (xp.array(k + 1.0) * growth - q)]
    if total > 8:
        k = _numbers(8, _head(n, _RECIPROCALS))
        table = _reciprocal_powers()[:, : len(k)]
        parts.append(xp.power(k, p) * xp.matmul(binomial_coefficients(xp, p, len(table) + 2)[2:], xp.array(table)))
    if total > _RECIPROCALS:
        parts.append(tangent_defect(xp, p, long_run(xp, _RECIPROCALS, n), 7))
    return xp.concatenate(parts)[:total]


@functools.cache
def _reciprocal_powers() -> np.ndarray[Any, Any]:
    """``k^-j`` for k = 8 .. 511 and j = 2 .. 19: independent of the order, and slower to compute than the rest."""
    return np.asarray(_numbers(8, _RECIPROCALS) ** -_numbers(2, 20)[:, None])


def tangent_defect(xp: Namespace, p: Any, k: Any, terms: int) -> Any:
    """The same at given k >= 8, by ``terms`` terms of the binomial series."""
    return xp.power(k, p) * power_sum(xp, 1.0 / k, binomial_coefficients(xp, p, terms + 2)[2:]) * xp.array(1.0 / k**2)


def trapezoid_defects(xp: Namespace, p: Any, n: int | Lags) -> Any:
    """The integral of ``s^p`` from k to k+1 minus the trapezoidal rule, for k = 0 .. n-1 and 0 < p <= 1."""
    first = xp.array([1.0]) / (p + 1.0) - 0.5
    # z^2 is at most 1/9 from k = 1 on, and 6e-5 from k = 64 on.
    near = trapezoid_defect(xp, p, _numbers(1, _head(n, _HEAD)), 17)
    far = trapezoid_defect(xp, p, long_run(xp, _HEAD, n if isinstance(n, Lags) else max(n, _HEAD)), 4)
    return xp.concatenate([first, near, far])[: count_of(n)]


def trapezoid_defect(xp: Namespace, p: Any, k: Any, terms: int) -> Any:
    """The same at given k >= 1, by ``terms`` terms of a series.

    Around the midpoint ``c = k + 1/2``, with ``z = 1 / (2c)``, it is ``-c^p sum_j binom(p, 2j) 2j/(2j+1) z^(2j)``,
    whose terms all have the same sign.
    """
    centre = k + 0.5
    z2 = 0.25 / centre**2
    twice = 2.0 * np.arange(1, terms + 1)
    factors = binomial_coefficients(xp, p, 2 * terms + 1)[2::2] * xp.array(twice / (twice + 1.0))
    return -xp.power(centre, p) * power_sum(xp, z2, factors) * xp.array(z2)


def binomials(xp: Namespace, alpha: Any, n: int | Lags) -> Any:
    """Coefficients of ``(1 - z)^alpha``: ``(-1)^k binom(alpha, k)`` for k = 0 .. n-1.

    By the recurrence up to k = 128; beyond, from the last of those by the quotient of Gamma functions in its expansion
    around ``w = k - alpha/2`` (Tricomi and Erdelyi 1951; even powers only, as found by Fields 1966), which keeps every
    digit, whereas a product of a million factors has lost three.
    """
    total = count_of(n)
    k = xp.array(_numbers(1, _head(n, _RECURRED + 1)))
    factors = (k - (alpha + 1.0)) / k
    first = xp.cumprod(xp.concatenate([xp.array([1.0]), factors]))
    if total <= _RECURRED + 1:
        return first[:total]
    return xp.concatenate([first, binomial(xp, alpha, long_run(xp, _RECURRED + 1, n), first[-1])])


def binomial(xp: Namespace, alpha: Any, k: Any, last: Any) -> Any:
    """The same at given k > 128, from ``last``, the one at 128."""
    start, far = _RECURRED - 0.5 * alpha, xp.array(k) - 0.5 * alpha
    growth = xp.exp(-(alpha + 1.0) * xp.log(far / start))
    return last * growth * _gamma_series(far, alpha) / _gamma_series(start, alpha)


def _gamma_series(w: Any, alpha: Any) -> Any:
    """``w^(alpha+1) Gamma(w - alpha/2) / Gamma(w + 1 + alpha/2)`` for large w, to w^-8."""
    p, e = -alpha - 1.0, -alpha
    b2 = p * (p - 1.0) / 2.0
    b4 = b2 * (p - 2.0) * (p - 3.0) / 12.0
    b6 = b4 * (p - 4.0) * (p - 5.0) / 30.0
    b8 = b6 * (p - 6.0) * (p - 7.0) / 56.0
    c2 = -b2 * e / 12.0
    c4 = b4 * e * (5.0 * e + 2.0) / 240.0
    c6 = -b6 * e * (35.0 * e**2 + 42.0 * e + 16.0) / 4032.0
    c8 = b8 * e * (175.0 * e**3 + 420.0 * e**2 + 404.0 * e + 144.0) / 34560.0
    u = 1.0 / (w * w)
    return 1.0 + u * (c2 + u * (c4 + u * (c6 + u * c8)))


def centred_binomials(xp: Namespace, alpha: Any, n: int | Lags) -> Any:
    r"""``(-1)^k Gamma(alpha+1) / (Gamma(alpha/2-k+1) Gamma(alpha/2+k+1))`` for k = 0 .. n-1 and alpha > -1.

    The Fourier coefficients of ``|2 sin(x/2)|^alpha``. By the recurrence up to k = 128, beyond it by the quotient
    ``Gamma(k - alpha/2) / Gamma(k + alpha/2 + 1)`` in its expansion, as for :func:`binomials`.
    """
    total = count_of(n)
    k = xp.array(_numbers(1, _head(n, _RECURRED + 1)))
    half = 0.5 * alpha
    start = xp.exp(xp.lgamma(alpha + 1.0)) * xp.rgamma(half + 1.0) ** 2
    first = start * xp.cumprod(xp.concatenate([xp.array([1.0]), (k - 1.0 - half) / (k + half)]))
    if total <= _RECURRED + 1:
        return first[:total]
    far = long_run(xp, _RECURRED + 1, n)
    growth = xp.power(far / _RECURRED, -(alpha + 1.0)) * _gamma_series(xp.array(far), alpha)
    return xp.concatenate([first, first[-1] * growth / _gamma_series(float(_RECURRED), alpha)])


def difference_width(d: float, threshold: float, most: int = 1_000_000) -> int:
    """Number of weights of a difference that ``threshold`` keeps: the last k with ``abs(w_k) >= threshold``, plus 1.

    Parameters
    ----------
    d : float
        The order of the difference.
    threshold : float
        Smallest weight that is kept, positive.
    most : int
        The length of the series; later weights are not used.

    Examples
    --------
    >>> from hpfracc.operators.core.sequences import difference_width
    >>> difference_width(0.4, 1e-2)
    11
    """
    threshold = number("threshold", threshold, above=0.0)
    order = read_order(d, name="d")
    if order.known is None:
        raise InvalidInputError("threshold= needs the value of d, which is traced here; give window= instead")
    # From this k on the weights decrease, or never do.
    length = min(most, max(64, 4 * math.ceil(abs(order.known))))
    while True:
        large = np.nonzero(np.abs(binomials(NUMPY, order.known, length)) >= threshold)[0]
        last = int(large[-1]) + 1 if large.size else 1
        if last < length or length >= most:
            return min(last, most)
        length = min(most, 4 * length)
