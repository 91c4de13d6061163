"""Differences: increments, the input of L-type rules, and derivatives of integer order on uniform and other grids."""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate
from typing import Any, final

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, scalar, zeros

#: Order of accuracy of the differences that approximate derivatives of integer order.
DIFFERENCE_ORDER = Rule.terms


def increments(x: Any, n: int, terms: int = DIFFERENCE_ORDER) -> Any:
    """``g[j] - g[j-1]`` at every point, 0 at the first; ``g`` is the derivative of order ``n - 1`` times ``h**(n-1)``.

    For ``n = 1`` these are the differences of the samples. Above, ``g`` at point j comes from the samples up to j alone
    by the series of ``(-log(1 - B))**(n-1)`` in backward differences ``B``, cut after ``terms``; at the first points,
    from the polynomial through the first ``n - 1 + terms`` samples.
    """
    if n == 1:
        return join([x[..., :1] - x[..., :1], x[..., 1:] - x[..., :-1]])
    reach = start_points(n) - DIFFERENCE_ORDER + terms
    total = backward_sum(x, n, n - 1, reach + 1, terms)
    differences = forward_differences(x[..., : reach + 1])
    head = zeros(x, 1)
    table = start_table(n)
    steps = sum(differences[i] * constant(table[i - n, :reach], x) for i in range(n, reach + 1))
    return join([head, steps, total])


def repeated_differences(x: Any, count: int) -> Any:
    """The backward differences of order ``count``, from point ``count`` on."""
    for _ in range(count):
        x = x[..., 1:] - x[..., :-1]
    return x


def backward_sum(x: Any, count: int, m: int, first: int, terms: int = DIFFERENCE_ORDER) -> Any:
    """Differences of ``terms`` orders from ``count`` on, with :func:`backward_series`, from point ``first`` on."""
    v = repeated_differences(x, count)
    total = v[..., first - count :]
    for factor in backward_series(m)[1:terms]:
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


def head_of(order: Order) -> tuple[int, int]:
    """Number of first points of an L-type rule, and of the samples that they need; see :meth:`Rule.head`."""
    samples = start_points(order.ceiling) + 1
    if order.ceiling > 1:
        return samples - 1, samples
    return (1, samples) if maybe_whole(order) else (0, 0)


def maybe_whole(order: Order) -> bool:
    """Whether an order that is differentiable or traced may be a positive integer."""
    return not order.plain and order.ceiling > 0 and order.known in (None, order.ceiling)


@cache
def binomial_table(last: int) -> np.ndarray[Any, Any]:
    """Row i: the coefficients of ``binom(s, i)`` in powers of s."""
    return np.stack([np.pad(binomial_polynomial(i), (0, last - i)) for i in range(last + 1)])


Array = np.ndarray[Any, Any]

#: Maximum distance of a point relative to the nearest ones, and maximum growth of the weights that it may cause. All
#: points of a grid graded like j^3 pass; on steeper grids some near the origin do not.
_REACH = 100.0
_GROWTH = 1e4


@final
class Differences(Rule):
    r"""The derivative of integer order m by backward differences of order 4, common to all definitions.

    .. math:: h^m f^{(m)}(t_k) \approx \sum_{i=0}^{3} c_i \nabla^{m+i} f_k, \quad
        \Big(\sum_{i \ge 1} z^i / i\Big)^m = z^m \sum_i c_i z^i.

    The first m + 3 points use the polynomial through the first m + 4 samples, with the same order. For m = 0 the
    result is the samples. On any other grid the weights are those of :func:`slopes`.
    """

    usual_accuracy = float(DIFFERENCE_ORDER)
    name = "differences"
    cost = "O(n)"
    any_grid = True

    def least_points(self, order: Order) -> int:
        """``m + 4``, or 1 for order 0."""
        m = order.ceiling
        return m + DIFFERENCE_ORDER if m else 1

    def apply(self, samples: Samples, order: Order) -> Any:
        """Differences of differences, summed."""
        m, x = order.ceiling, samples.values
        if m == 0:
            return x * 1
        if not samples.grid.uniform:
            if samples.grid.traced is not None:
                raise InvalidInputError("integer orders are not differentiable in t on this grid; detach t")
            return slopes(x, samples.grid.times(), m)
        last = m + DIFFERENCE_ORDER - 1
        total = backward_sum(x, m, m, last)
        differences = forward_differences(x[..., : last + 1])[m:]  # those of a line are exact
        head = []
        for k in range(last):
            rates = [float(poly.polyval(k, poly.polyder(binomial_polynomial(i), m))) for i in range(m, last + 1)]
            head.append(sum(rate * difference for rate, difference in zip(rates, differences, strict=True)))
        return join([*head, total]) * samples.scale(-m)


def slopes(x: Any, points: Array, m: int, terms: int = DIFFERENCE_ORDER) -> Any:
    """The m-th derivative at every point, from the last ``m + terms`` samples; at the first points from the first ones.

    Order 4 on grids whose neighbouring steps have similar sizes. Across a gap fewer samples are used; see
    :func:`near_weights`.
    """
    if m == 0:
        return x
    n, count = len(points), m + terms
    weights, starts = slope_weights(points, m, terms)
    later = sum(x[..., count - 1 - i : n - i] * constant(np.ascontiguousarray(weights[:, i]), x) for i in range(count))
    return join([*(weighted_sum(x, row) for row in starts), later])


def slope_weights(points: Array, m: int, terms: int) -> tuple[Array, Array]:
    """Weights of :func:`slopes`: of the last samples, the newest first, at later points, and at each of the first."""
    count = m + terms
    window = np.lib.stride_tricks.sliding_window_view(points, count)[:, ::-1]
    starts = [weights_among(points[:count], j, m) for j in range(count - 1)]
    return near_weights(window - window[:, :1], m), np.stack(starts)


def slopes_at_start(x: Any, points: Array, most: int, terms: int = DIFFERENCE_ORDER) -> list[Any]:
    """Derivatives 0 to ``most`` at the first of these points, from the first ``most + terms`` samples."""
    head = points[: most + terms]
    later = [weighted_sum(x, weights_among(head, 0, k)) for k in range(1, most + 1)]
    return [x[..., :1], *later]


def weights_among(points: Array, j: int, m: int) -> Array:
    """Weights of the m-th derivative at point ``j`` of a few points, from the nearest of them."""
    at = points - points[j]
    turn = np.argsort(np.abs(at), kind="stable")
    weights = np.zeros(len(points))
    weights[turn] = near_weights(at[turn][None], m)[0]
    return weights


def near_weights(at: Array, m: int) -> Array:
    """As :func:`difference_weights`, without points that degrade the result; ``at`` is sorted by distance from 0.

    A polynomial through points on both sides of a gap is inaccurate: after a step 4e4 times as long as those before, a
    derivative came out 1e5 times too large. Therefore points much farther than the nearest m + 1 are dropped, and so
    are those that would increase the weights many times.
    """
    count = at.shape[-1]
    weights = difference_weights(at, m)
    if count == m + 1:
        return weights
    least = np.abs(difference_weights(at[:, : m + 1], m)).sum(axis=1)
    reached = (np.abs(at) <= _REACH * np.abs(at[:, m : m + 1])).sum(axis=1)
    rows = np.flatnonzero((reached < count) | ~(np.abs(weights).sum(axis=1) <= _GROWTH * least))
    for size in range(count - 1, m, -1):
        if not rows.size:
            break
        fewer = difference_weights(at[rows, :size], m)
        weights[rows, :size], weights[rows, size:] = fewer, 0.0
        rows = rows[(reached[rows] < size) | ~(np.abs(fewer).sum(axis=1) <= _GROWTH * least[rows])]
    return weights


def difference_weights(at: Array, m: int) -> Array:
    """Weights of the m-th derivative at 0 of the polynomials through points ``at``, shape ``(..., count)``.

    Each is ``m!`` times the coefficient of ``x^m`` in the polynomial that is 1 at its point and 0 at the others.
    """
    count = at.shape[-1]
    # Scaled by the largest distance: products of a few gaps of 1e100 or 1e-100 would overflow or underflow.
    unit = np.abs(at).max(axis=-1, keepdims=True)
    at = at / unit
    weights = np.empty_like(at)
    for k in range(count):
        others = np.delete(at, k, axis=-1)
        series = np.eye(1, m + 1).reshape((1,) * (at.ndim - 1) + (m + 1,)) + 0.0 * at[..., :1]
        for j in range(count - 1):
            series = np.concatenate([0.0 * series[..., :1], series[..., :-1]], -1) - others[..., j : j + 1] * series
        weights[..., k] = series[..., m] / np.prod(at[..., k : k + 1] - others, axis=-1)
    return np.asarray(math.factorial(m) * weights / unit**m)


def weighted_sum(x: Any, weights: Any) -> Any:
    """``sum_k weights[k] x[..., k]``, one point, for weights of a derivative: exactly zero on constants."""
    x = x[..., : len(weights)] - x[..., :1]
    terms = [x[..., k : k + 1] * scalar(weight, x) for k, weight in enumerate(weights)]
    return sum(terms[1:], terms[0])
