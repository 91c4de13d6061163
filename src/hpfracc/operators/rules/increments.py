"""Increments of samples or of their derivative, the input of L-type rules; and the first points, from a polynomial.

Increments are exactly zero on constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc._xp import Namespace, array_namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, constant, join, largest, real_dtype, scalar, zeros
from hpfracc.operators.core.weights import weights_of

#: Order of accuracy of the differences that approximate derivatives of integer order.
DIFFERENCE_ORDER = 4


def increments(x: Any, n: int) -> Any:
    """``g[j] - g[j-1]`` at every point, 0 at the first; ``g`` is the derivative of order ``n - 1`` times ``h**(n-1)``.

    For ``n = 1`` these are the differences of the samples. Above, ``g`` at point j comes from the samples up to j alone
    by the series of ``(-log(1 - B))**(n-1)`` in backward differences ``B``, cut after four terms; at the first points,
    from the polynomial through the first ``n + 3`` samples.
    """
    if n == 1:
        return join([x[..., :1] - x[..., :1], x[..., 1:] - x[..., :-1]])
    reach = start_points(n)
    total = backward_sum(x, n, n - 1, reach + 1)
    differences = forward_differences(x[..., : reach + 1])
    head = zeros(x, 1)
    table = start_table(n)
    steps = sum(differences[i] * constant(table[i - n], x) for i in range(n, reach + 1))
    return join([head, steps, total])


def repeated_differences(x: Any, count: int) -> Any:
    """The backward differences of order ``count``, from point ``count`` on."""
    for _ in range(count):
        x = x[..., 1:] - x[..., :-1]
    return x


def backward_sum(x: Any, count: int, m: int, first: int) -> Any:
    """Differences of order ``count`` and above, with the coefficients of :func:`backward_series`, from a point on."""
    v = repeated_differences(x, count)
    total = v[..., first - count :]
    for factor in backward_series(m)[1:]:
        v = repeated_differences(v, 1)
        total = total + factor * v[..., v.shape[-1] - total.shape[-1] :]
    return total


def start_points(n: int) -> int:
    """Index of the last point whose derivative of order n-1 comes from the first samples' polynomial."""
    return n + DIFFERENCE_ORDER - 2


def forward_differences(head: Any) -> list[Any]:
    """``[f_0, D f_0, D^2 f_0, ...]`` of the first samples, each with one point along the last axis.

    The i-th depends on samples 0 .. i only.
    """
    levels = accumulate(range(1, head.shape[-1]), lambda v, _: repeated_differences(v, 1), initial=head)
    return [v[..., :1] for v in levels]


@cache
def backward_series(m: int) -> tuple[float, ...]:
    """Coefficients of ``(-log(1 - z))**m / z**m``, as many as the order of accuracy."""
    log = 1.0 / np.arange(1, DIFFERENCE_ORDER + 1)
    series = np.eye(1, DIFFERENCE_ORDER)[0]
    for _ in range(m):
        series = np.convolve(series, log)[:DIFFERENCE_ORDER]
    return tuple(float(value) for value in series)


def backward_size(m: int) -> float:
    """Sum of the absolute weights of the backward difference for a derivative of order ``m``."""
    return sum(factor * 2.0 ** (m + i) for i, factor in enumerate(backward_series(m)))


@cache
def binomial_polynomial(i: int) -> np.ndarray[Any, Any]:
    """Coefficients of ``s (s-1) ... (s-i+1) / i!`` in rising powers of s."""
    result = np.ones(1)
    for root in range(i):
        result = poly.polymul(result, np.array([-root, 1.0])) / (root + 1)
    return result


@cache
def start_table(n: int) -> np.ndarray[Any, Any]:
    """Row i: the increments, up to the last start point, of the derivative of order n-1 of ``binom(s, n + i)``."""
    last = start_points(n)
    points = np.arange(last + 1, dtype=np.float64)
    rows = [np.diff(poly.polyval(points, poly.polyder(binomial_polynomial(i), n - 1))) for i in range(n, last + 1)]
    return np.array(rows)


def weighted_sum(x: Any, weights: Any) -> Any:
    """``sum_k weights[k] x[..., k]``, one point."""
    terms = [x[..., k : k + 1] * scalar(weight, x) for k, weight in enumerate(weights)]
    return sum(terms[1:], terms[0])


#: A slope at the origin counts as nonzero above this multiple of the polynomial's last term, and as 0 below that term.
_CLEAR = 50.0
#: Maximum distance of optional points relative to the required ones, on any grid.
_REACH = 100.0


def head_of(order: Order) -> tuple[int, int]:
    """Number of first points of an L-type rule, and of the samples that they need; see :meth:`Rule.head`."""
    samples = start_points(order.ceiling) + 1
    if order.ceiling > 1:
        return samples - 1, samples
    return (1, samples) if maybe_whole(order) else (0, 0)


def maybe_whole(order: Order) -> bool:
    """Whether an order that is differentiable or traced may be a positive integer."""
    return not order.plain and order.ceiling > 0 and order.known in (None, order.ceiling)


def first_points(samples: Samples, order: Order, lowest: int, last: int) -> Any:
    """The operator at points 1 .. last - 1 of a uniform grid, of the polynomial through samples 0 .. last.

    ``lowest`` is the lowest power that contributes: n for Caputo, 0 for Riemann-Liouville.
    """
    x = samples.values
    rows = first_rows(order, lowest, last)
    differences = forward_differences(x[..., : last + 1])[lowest:]
    with order.xp.scope():
        rows = tuple(order.guard(row) for row in rows)
    terms = [difference * constant(row, x) for difference, row in zip(differences, rows, strict=True)]
    return sum(terms[1:], terms[0]) * samples.scale(-order.value)


def first_values(samples: Samples, order: Order, lowest: int, value: Any, any_grid: bool) -> list[Any]:
    """The points 1 .. :func:`start_points` - 1, of a rule for uniform grids or for any; ``value`` is the rule's own."""
    if any_grid:
        return first_points_on(samples, order, lowest, value)
    return [first_points(samples, order, lowest, start_points(order.ceiling))]


def first_rows(order: Order, lowest: int, last: int) -> tuple[Any, ...]:
    """``D^alpha binom(s, i)`` at s = 1 .. last-1 for i = lowest .. last, without powers below ``lowest``."""

    def make(xp: Namespace, alpha: Any, n: int) -> tuple[Any, ...]:
        at = np.arange(1.0, last)
        powers = xp.stack([_power_factor(xp, alpha, q) * xp.power(at, q - alpha) for q in range(lowest, last + 1)])
        return tuple(xp.matmul(xp.array(binomial_table(lowest, last)), powers))

    return weights_of(("first points", lowest, last), make, order, last)


def _power_factor(xp: Namespace, alpha: Any, q: int) -> Any:
    return math.factorial(q) * xp.rgamma(q + 1.0 - alpha)


@cache
def binomial_table(lowest: int, last: int) -> np.ndarray[Any, Any]:
    """Row i: the coefficients of ``binom(s, lowest + i)`` in powers of s from ``lowest`` on."""
    rows = [np.pad(binomial_polynomial(i), (0, last - i))[lowest:] for i in range(lowest, last + 1)]
    return np.stack(rows)


def first_points_on(samples: Samples, order: Order, lowest: int, value: Any) -> list[Any]:
    """The same on any grid, for the points of :func:`head_of`.

    A sample much farther from the origin than those that a point needs is dropped. A point after such a gap, with
    enough samples before it, keeps its ``value``.
    """
    x, n, points = samples.values, order.ceiling, samples.grid.times()
    last = start_points(n)
    reach = points[: last + 1] - points[0]
    found = []
    for i in range(1, last):
        if i >= n and reach[i] > _REACH * reach[i - 1]:
            found.append(value[..., i : i + 1])
            continue
        count = int(np.searchsorted(reach, _REACH * reach[max(i, n)], side="right"))
        u = reach[:count] / reach[count - 1]
        bases = [_lagrange(u, k) for k in range(count)]
        with order.xp.scope():
            unit = order.xp.power(float(reach[count - 1]), -order.value)
            powers = [
                _power_factor(order.xp, order.value, q) * order.xp.power(float(u[i]), q - order.value) * unit
                for q in range(lowest, count)
            ]
            weights = [
                order.guard(sum(factor * float(basis[q]) for q, factor in enumerate(powers, lowest))) for basis in bases
            ]
        found.append(weighted_sum(x, weights))
    return found


def _lagrange(u: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """Coefficients of the polynomial that is 1 at ``u[k]`` and 0 at the others, in rising powers."""
    others = np.delete(u, k)
    return np.asarray(poly.polyfromroots(others) / np.prod(u[k] - others))


def slopes_at_origin(x: Any, most: int, last: int) -> list[tuple[Any, Any]]:
    """Derivatives 1 to ``most`` at the first point of a uniform grid, of the polynomial through samples 0 .. last.

    Each is for unit step, divided by its factorial, and returned with the last term of its sum.
    """
    if most < 1:
        return []
    differences = forward_differences(x[..., : last + 1])
    found = []
    for k in range(1, most + 1):
        terms = [float(binomial_polynomial(i)[k]) * differences[i] for i in range(k, len(differences))]
        found.append((sum(terms[1:], terms[0]), abs(terms[-1])))
    return found


def taylor_at_origin(x: Any, count: int, last: int) -> list[Any]:
    """Taylor coefficients 0 .. count-1 for unit step at the first point, of the polynomial of samples 0 .. last."""
    return [x[..., :1], *(slope for slope, _ in slopes_at_origin(x, count - 1, last))]


def slope_at_origin(samples: Samples, order: Order) -> Any:
    """The derivative of order n at the first point of a uniform grid; nan if there are too few samples."""
    x, n = samples.values, order.ceiling
    if samples.n <= n:
        return x[..., :1] * math.nan
    last = min(start_points(n), samples.n - 1)
    return slopes_at_origin(x, n, last)[-1][0] * math.factorial(n) * samples.scale(-n)


def infinite_at_origin(first: Any, order: Order, slopes: list[tuple[Any, Any]], rounding: Any = 0.0) -> Any:
    """A Riemann-Liouville operator at the origin: 0 for an integral, infinite for a derivative unless f is 0.

    The sign is that of the lowest nonzero derivative of f there. f counts as 0 if its first sample is exactly 0.
    ``slopes`` are its derivatives 1 .. n-1 with their uncertainties, to which ``rounding`` is added; if one can neither
    be distinguished from 0 nor from a nonzero value, the result is nan. The result is not differentiable.
    """
    xp = array_namespace(first)
    first = xp.stop_gradient(first)
    if order.ceiling == 1 and "complex" not in str(first.dtype):
        with np.errstate(divide="ignore", invalid="ignore"):
            # Divided by 0, and by 1 where it is 0 itself. Non-finite values give nan, as a product with 0 would.
            return first / (first == 0) + first * 0
    nothing = first * 0
    if order.ceiling <= 0:
        return nothing
    result = nothing
    for k in range(order.ceiling - 1, -1, -1):
        slope, doubt = slopes[k - 1] if k else (first, abs(nothing))
        sign = -math.inf if (order.ceiling - 1 - k) % 2 else math.inf
        if "complex" in str(first.dtype):
            told = nothing + (sign + abs(nothing))
        else:
            told = xp.where(slope < 0, nothing - sign, nothing + sign)
        if k:
            doubt = doubt + rounding
            told = xp.where(abs(slope) > _CLEAR * doubt, told, nothing + math.nan)
        # False for nan, which then propagates.
        result = xp.where(abs(slope) <= doubt, result, told + abs(slope) * 0)
    return result


def singular_origin(x: Any, order: Order, last: int) -> Any:
    """:func:`infinite_at_origin` of samples on a uniform grid, from samples 0 .. last."""
    x = array_namespace(x).stop_gradient(x)
    if order.ceiling <= 1:
        return infinite_at_origin(x[..., :1], order, [])
    return infinite_at_origin(
        x[..., :1], order, slopes_at_origin(x, order.ceiling - 1, last), rounding_at_origin(x, last)
    )


def rounding_at_origin(x: Any, last: int) -> Any:
    """Bound of the rounding error of a zero slope from samples 0 .. last, for unit step."""
    return largest(x[..., : last + 1]) * (4.0 * 2.0**last * float(np.finfo(real_dtype(x)).eps))


def whole_at_origin(limit: Any, slope: Callable[[], Any], order: Order) -> Any:
    """The value at the origin of a derivative whose order is a tensor: for an integer order n, the n-th derivative.

    Below n it is ``limit``; nan if a traced order is outside this range.
    """
    if not maybe_whole(order):
        return limit
    if order.known is not None:
        return slope()
    return order.guard(order.xp.where(order.value == order.ceiling, slope(), limit))
