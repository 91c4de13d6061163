"""Derivatives of integer order, by backward differences on uniform grids and by those of Fornberg on any other."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, scalar
from hpfracc.operators.rules.increments import (
    DIFFERENCE_ORDER,
    backward_size,
    backward_sum,
    binomial_polynomial,
    forward_differences,
)

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

    def magnification(self, alpha: float) -> float:
        """Sum of the absolute weights."""
        return backward_size(math.ceil(alpha)) if alpha > 0.0 else 0.0

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


def slopes(x: Any, points: Array, m: int) -> Any:
    """The m-th derivative at every point, from the last ``m + 4`` samples; at the first points from the first ones.

    Order 4 on grids whose neighbouring steps have similar sizes. Across a gap fewer samples are used; see
    :func:`near_weights`.
    """
    if m == 0:
        return x
    count = m + DIFFERENCE_ORDER
    n = len(points)
    window = np.lib.stride_tricks.sliding_window_view(points, count)[:, ::-1]  # newest first
    weights = near_weights(window - window[:, :1], m)
    later = sum(x[..., count - 1 - i : n - i] * constant(np.ascontiguousarray(weights[:, i]), x) for i in range(count))
    first = [weighted_sum(x, weights_among(points[:count], j, m)) for j in range(count - 1)]
    return join([*first, later])


def slopes_at_start(x: Any, points: Array, most: int) -> list[Any]:
    """Derivatives 0 to ``most`` at the first of these points, from the first ``most + 4`` samples."""
    head = points[: most + DIFFERENCE_ORDER]
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
