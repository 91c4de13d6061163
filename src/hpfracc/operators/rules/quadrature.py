"""Convolution quadrature: Grünwald-Letnikov sums, and fractional powers of multistep methods."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, final

import numpy as np
from scipy.special import bernoulli

from hpfracc._xp import NUMPY, Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, binomials, count_of, long_run, power_sum, previous
from hpfracc.operators.core.values import (
    Samples,
    add_from,
    constant,
    join,
    scaled_weights,
    weights_key,
    weights_of,
    zeros,
)
from hpfracc.operators.rules.differences import (
    binomial_table,
    forward_differences,
    maybe_whole,
    repeated_differences,
    start_points,
)
from hpfracc.operators.rules.first_points import first_points, singular_origin, slope_at_origin, whole_at_origin

#: Weights up to here come from the product of two power series, those beyond from the expansion about the pole.
_HEAD = 512
#: Coefficients of the second of those series, by p: they fall like 0.334^k, 0.427^k, 0.561^k, 0.709^k and 0.864^k.
_TAPS = {2: 40, 3: 56, 4: 80, 5: 130, 6: 300}
#: Points of the Cauchy integral for them; the truncation error is far below rounding.
_CIRCLE = 1024
#: From here on the starting weights come from an expansion in 1/k, accurate to rounding.
_FAR = {2: 128, 3: 128, 4: 128, 5: 128, 6: 256}
_TERMS = 14


def convolve_by_parts(
    samples: Samples, order: Order, scheme: str, make: Callable[[Namespace, Any, Any, int], Any]
) -> Any:
    """``h^-alpha sum_j w[j] f[k-j]`` at every point, where ``w`` are the coefficients of a series ``W(z)``.

    The error of a fast convolution is a rounding error of its largest product, which ``h^-alpha`` amplifies: applied to
    the samples themselves, a derivative of order 2.5 has an error of 2e-5 at 1e4 points, and 5e-14 in this form.
    Therefore the series of ``W(z) / (1 - z)^m`` is convolved with the m-th differences, which are small, and the first
    samples are added with separate weights. The sum is the same.

    Parameters
    ----------
    samples, order
        What to convolve; m is the order rounded up, 0 for integrals.
    scheme : str
        Names the series.
    make : callable
        ``make(xp, alpha, n, m)``: n coefficients of ``W(z) / (1 - z)^m``.
    """
    n, x = samples.n, samples.values
    m = min(max(order.ceiling, 0), n - 1)

    def make_all(xp: Namespace, alpha: Any, n: int | Lags) -> tuple[Any, ...]:
        return (make(xp, alpha, n, m), *(make(xp, alpha, n, i + 1) for i in range(m - 1)))

    (weights, *firsts), key, factor = scaled_weights((scheme, m), make_all, order, samples, -1, few=True)
    if factor is not None:
        x = x * factor
    if m == 0:
        return samples.convolve(weights, x, key)
    if m == 1:
        value = samples.convolve(weights, x, key, differences=True)
    else:
        value = samples.convolve(weights, join([zeros(x, m), repeated_differences(x, m)]), key)
    # Added separately: with the primitive's starting weights the first samples themselves would be among its summands.
    # The last of these series is that of the weights.
    for i, (first, difference) in enumerate(zip([*firsts, weights], forward_differences(x[..., :m]), strict=True)):
        first = constant(first[: n - i], x, None if key is None else (key, "first", i))
        value = add_from(value, i, difference * first)
    return value


@final
class ConvolutionQuadrature(Rule):
    r"""Lubich's convolution quadrature on the backward differentiation formula of order p = 2 .. 6.

    .. math:: D^\alpha f(t_k) \approx h^{-\alpha} \Big[ \sum_{j=0}^{k} \omega_{k-j} f_j + \sum_{j=0}^{p-1} w_{k,j} f_j
        \Big], \quad \sum_k \omega_k \zeta^k = \Big( \sum_{i=1}^{p} \frac{(1-\zeta)^i}{i} \Big)^\alpha,

    with starting weights :math:`w_{k,j}` that make it exact on 1, t, ..., t^(p-1); above order 1 up to t^m,
    m the larger of p - 1 and n + 2 (n + 1 for p = 2), without which the first points would diverge.
    Negative orders give integrals, positive orders the Riemann-Liouville derivative. Order p at a fixed t after the
    origin, for f with enough continuous derivatives. For f that starts like :math:`t^s` with non-integer s the order is
    about 1 + s; starting weights for that case are not available, because their system cannot be solved in double
    precision. The first p - 1 points come from the polynomial through the samples so far; above order 1 the first m
    come from the polynomial through the first m + 1 samples. At a fixed number of steps from the origin the error is
    then :math:`O(h^{m+1-\alpha})`.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719.
    """

    one_call = True

    def __init__(self, p: int) -> None:
        self.p = p

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"cq2"`` to ``"cq6"``."""
        return f"cq{self.p}"

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The rule of order p - 1, for p >= 3."""
        return ConvolutionQuadrature(self.p - 1) if self.p > 2 else None

    def accuracy(self, alpha: float) -> float:
        """``p``."""
        return float(self.p)

    def least_points(self, order: Order) -> int:
        """``p + 1``, and ``m + 1`` above order 1."""
        return max(self.p + 1, self._degree(order) + 1)

    def head(self, order: Order) -> tuple[int, int]:
        """Above order 1 the first m points from m + 1 samples."""
        if order.ceiling > 1:
            return self._degree(order), self._degree(order) + 1
        return (1, self.p) if maybe_whole(order) else (0, 0)

    def measured_from(self, order: Order) -> int:
        """``p - 2``; above order 1 the first m points, because earlier points come from the same polynomials."""
        return self.p - 2 if order.ceiling <= 1 else self._degree(order)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution plus the starting weights."""
        n, p, last = samples.n, self.p, self._degree(order)

        def make(xp: Namespace, alpha: Any, n: int | Lags, m: int) -> Any:
            return _multistep_weights(xp, alpha, n, m, p)

        name = (f"{self.name} starts", last)
        (starts,) = weights_of(name, lambda xp, a, n: (_starting_weights(xp, a, n, last + 1, p),), order, n)
        key = weights_key(name, order, n)
        scale = samples.scale(-order.value)
        value = convolve_by_parts(samples, order, self.name, make)[..., last:]
        starts = constant(starts, samples.values, key)
        for i, difference in enumerate(forward_differences(samples.values[..., : last + 1])):
            value = value + (difference * scale) * starts[i]
        origin = singular_origin(samples, order, last)
        points = [whole_at_origin(origin, lambda: slope_at_origin(samples, order), order)]
        if last > 1:
            # Up to order 1 each uses the samples up to it.
            points.append(first_points(samples, order, 0, last, causal=order.ceiling <= 1))
        value = join([*points, value])
        return order.guard(value) if order.ceiling > 0 else value

    def _degree(self, order: Order) -> int:
        """Degree of the polynomials on which the rule is exact.

        Above order 1 it is at least that of the first points of L-type rules, limited to n + p - 1, up to which the
        starting weights decay with the distance.
        """
        n, p = order.ceiling, self.p
        return p - 1 if n <= 1 else max(p - 1, min(start_points(n), n + p - 1))


def multistep_weights(xp: Namespace, alpha: Any, n: int, p: int) -> Any:
    """Coefficients of ``(sum_{i=1}^{p} (1-z)^i / i)^alpha``: integrals of order ``-alpha`` if alpha is negative."""
    return _multistep_weights(xp, alpha, n, 0, p)


@lru_cache(maxsize=8)
def _bend_of_number(alpha: float, p: int) -> tuple[Any, Any]:
    return _bend(NUMPY, alpha, p)


def _bend(xp: Namespace, alpha: Any, p: int) -> tuple[Any, Any]:
    """Coefficients of ``Q(z)^alpha``, ``Q = sum_i (1-z)^i / (i+1)``, in powers of z, and in powers of 1 - z.

    The method is the Grünwald sum times this factor.
    """
    size, modulus, angle, turn = _circle(p)
    # Cauchy's integral over the unit circle, where Q has no zero. In real arithmetic, which all libraries support.
    wave = xp.cos(xp.array(angle) * alpha - xp.array(turn))
    about_zero = xp.matmul(wave, xp.array(size) * xp.exp(xp.array(modulus) * alpha))
    return about_zero, _power_series(xp, alpha, _power_table(tuple(1.0 / (j + 1) for j in range(p)), 12))


def _starting_weights(xp: Namespace, alpha: Any, n: int, count: int, p: int) -> Any:
    """Starting weights: the error of the sum for ``D^alpha binom(t, i)``, i < count, at points count-1 .. n-1, h = 1.

    One row per i. The polynomial through the first samples is a sum of these binomials, with forward differences as
    coefficients. Near the origin the error is the exact value minus the sum. Far away both are of size k^(i-alpha) and
    their difference of size k^(-alpha-1), which would cancel. There it comes from the expansion of the generating
    function at its pole, ``z = -log(zeta)``: each term ``z^s`` contributes ``k^(-s-1) / Gamma(-s)``.
    """
    near = min(n, _FAR[p])
    k = np.arange(count - 1.0, near)
    powers = xp.stack([math.factorial(q) * xp.rgamma(q + 1.0 - alpha) * xp.power(k, q - alpha) for q in range(count)])
    exact = xp.matmul(xp.array(binomial_table(count - 1)), powers)
    # The sum of binom(j, i) is a coefficient of the series over (1-z)^(i+1), shifted by i.
    sums = [_multistep_weights(xp, alpha, near - i, i + 1, p)[count - 1 - i :] for i in range(count)]
    head = exact - xp.stack(sums)
    if n == near:
        return head
    symbol = _power_series(xp, alpha, _power_table(_symbol(p, count), _TERMS + count + 1))
    # Powers from p on, for which the method alone is not exact, have terms that decay more slowly.
    slow = count - p
    expansion = xp.matmul(xp.array(_pole_table(count, slow)), symbol).reshape(count, _TERMS + slow)
    expansion = expansion * xp.rgamma(slow - alpha - xp.array(np.arange(_TERMS + slow, dtype=np.float64)))
    k = long_run(xp, near, n)
    tail = -power_sum(xp, 1.0 / k, expansion) * xp.power(k, slow - alpha - 1.0)
    return xp.concatenate([head, tail], 1)


def _multistep_weights(xp: Namespace, alpha: Any, n: int | Lags, m: int, p: int) -> Any:
    """Coefficients of ``(sum_i (1-z)^i / i)^alpha / (1-z)^m = (1-z)^(alpha-m) Q(z)^alpha``."""
    simple = binomials(xp, alpha - m, n)
    bend = _bend_of_number(alpha, p) if isinstance(alpha, float) else _bend(xp, alpha, p)
    about_zero, about_one = (xp.array(each) for each in bend)
    total = count_of(n)
    head = min(total, _HEAD)
    lag = np.arange(head)[:, None] - np.arange(_TAPS[p])[None, :]
    near = xp.matmul(simple[np.maximum(lag, 0)] * xp.array(lag >= 0), about_zero)
    if total <= _HEAD:
        return near
    # In powers (1-z)^(a+j) with a = alpha - m: binom(a+1, k) = binom(a, k) (a+1) / (a+1-k), and so on.
    k = xp.array(long_run(xp, _HEAD, n))
    rest = 0.0 * k
    for j in range(about_one.shape[0] - 1, 0, -1):
        rest = (rest + about_one[j]) * (alpha - m + j) / (alpha - m + j - k)
    return xp.concatenate([near, simple[_HEAD:] * (1.0 + rest)])


@cache
def _circle(p: int) -> tuple[Any, Any, Any, Any]:
    """Weights, log-modulus and angle of Q on the upper half of the unit circle, and the angles of each coefficient."""
    point = np.arange(_CIRCLE // 2 + 1)
    theta = 2.0 * np.pi * point / _CIRCLE
    y = 1.0 - np.exp(1j * theta)
    q = sum(y**j / (j + 1) for j in range(p))
    size = np.full(len(theta), 2.0 / _CIRCLE)
    size[[0, -1]] = 1.0 / _CIRCLE
    # Full turns are removed first, because they would cost digits.
    turn = 2.0 * np.pi * (np.outer(np.arange(_TAPS[p]), point) % _CIRCLE) / _CIRCLE
    return size, np.log(np.abs(q)), np.unwrap(np.angle(q)), turn


@cache
def _power_table(series: tuple[float, ...], count: int) -> np.ndarray[Any, Any]:
    """From powers of alpha to coefficients of ``(1 + a_1 z + ...)^alpha = exp(alpha L(z))``: L^d / d!, by columns."""
    a = np.zeros(count)
    a[: min(len(series), count)] = series[:count]
    log = np.zeros(count)
    for m in range(1, count):
        log[m] = a[m] - sum(j * log[j] * a[m - j] for j in range(1, m)) / m
    columns = [np.eye(1, count)[0]]
    for d in range(1, count):
        columns.append(np.convolve(columns[-1], log)[:count] / d)
    return np.stack(columns, axis=1)


def _power_series(xp: Namespace, alpha: Any, table: np.ndarray[Any, Any]) -> Any:
    powers = xp.cumprod(xp.concatenate([xp.array([1.0]), alpha + xp.array(np.zeros(table.shape[1] - 1))]))
    return xp.matmul(xp.array(table), powers)


@cache
def _symbol(p: int, most: int) -> tuple[float, ...]:
    """Coefficients of ``sum_i (1 - e^-z)^i / i`` over z: 1, then zeros up to z^(p-1)."""
    count = _TERMS + most + 1
    y = np.array([0.0, *((-1.0) ** (j + 1) / math.factorial(j) for j in range(1, count + 1))])
    total, power = np.zeros(count + 1), np.eye(1, count + 1)[0]
    for i in range(1, p + 1):
        power = np.convolve(power, y)[: count + 1]
        total += power / i
    total = total[1:]
    total[1:p] = 0.0  # by construction; rounding aside
    return tuple(float(value) for value in total)


@cache
def _pole_table(count: int, slow: int) -> np.ndarray[Any, Any]:
    """From the coefficients of the symbol to those of its product with the series of ``binom(j, i)``, without the pole.

    The series of j^i is ``i! / z^(i+1)`` plus a regular part; the first term of its product is the exact result. Terms
    ``z^m`` of the product, times the symbol's own power, from m = -slow on.
    """
    powers = np.zeros((count, _TERMS + slow, _TERMS + count + 1))
    for i in range(count):
        regular = _regular_part(i)
        for m in range(-slow, _TERMS):
            if m + i + 1 > 0:
                powers[i, m + slow, m + i + 1] = math.factorial(i)
            if m >= 0:
                powers[i, m + slow, : m + 1] += regular[m::-1]
    mixed = np.einsum("iq,qmc->imc", binomial_table(count - 1), powers)
    return np.asarray(mixed.reshape(count * (_TERMS + slow), -1))


@cache
def _regular_part(i: int) -> np.ndarray[Any, Any]:
    """Coefficients of ``sum_j j^i e^(-jz)`` without its pole: ``(-1)^m zeta(-i-m) / m!``, with 0^0 = 1."""
    numbers = bernoulli(i + _TERMS + 1)
    found = [(-1.0) ** m * -numbers[i + m + 1] / (i + m + 1) / math.factorial(m) for m in range(_TERMS)]
    if i == 0:
        found[0] = 0.5
    return np.array(found)


class GrunwaldSum(Rule):
    """A causal sum of the samples with the coefficients of a power series."""

    one_call = True

    @staticmethod
    @abstractmethod
    def make(xp: Namespace, alpha: Any, n: Any, m: int) -> Any:
        """N coefficients of the series over ``(1 - z)^m``."""

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution."""
        return convolve_by_parts(samples, order, self.name, self.make)


@final
class Grunwald(GrunwaldSum):
    r"""The Grünwald-Letnikov sum.

    .. math:: D^\alpha f(t_k) \approx h^{-\alpha} \sum_{j=0}^{k} (-1)^j \binom{\alpha}{j} f_{k-j}.

    Order 1 at a fixed t beyond the origin, for smooth f with any value at the origin. The backward
    difference quotient for integer alpha, an integral for negative alpha.

    References
    ----------
    I. Podlubny, *Fractional Differential Equations*, 1999, section 2.2.
    """

    usual_accuracy = 1.0
    name = "gl"

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int | Lags, m: int) -> Any:
        """The weights."""
        return binomials(xp, alpha - m, n)


@final
class WeightedGrunwald(GrunwaldSum):
    r"""The weighted shifted Grünwald-Letnikov sum with shifts 0 and -1, which needs no later sample.

    .. math:: D^\alpha f(t_k) \approx h^{-\alpha} \sum_{j=0}^{k} \Big[ \big(1 + \tfrac{\alpha}{2}\big) g_j
        - \tfrac{\alpha}{2} g_{j-1} \Big] f_{k-j}, \quad g_j = (-1)^j \binom{\alpha}{j}.

    Order 2 at a fixed t if f vanishes at the origin and continues smoothly by zero to order 1 there (f(0) = 0 is enough
    at a fixed t); order 1 otherwise.

    References
    ----------
    W. Tian, H. Zhou, W. Deng, Math. Comp. 84 (2015) 1703-1727.
    """

    usual_accuracy = 2.0
    name = "wsgl"
    companion = Grunwald()

    @staticmethod
    def make(xp: Namespace, alpha: Any, n: int | Lags, m: int) -> Any:
        """The weights."""
        g = binomials(xp, alpha - m, n)
        before = g[:-1] if isinstance(n, int) else binomials(xp, alpha - m, previous(n))
        return (1.0 + 0.5 * alpha) * g - 0.5 * alpha * xp.concatenate([xp.array([0.0]), before])
