"""Increments of samples or of their derivative, the input of L-type rules; exactly zero on constants."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import constant, join, zeros

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
def binomial_table(lowest: int, last: int) -> np.ndarray[Any, Any]:
    """Row i: the coefficients of ``binom(s, lowest + i)`` in powers of s from ``lowest`` on."""
    rows = [np.pad(binomial_polynomial(i), (0, last - i))[lowest:] for i in range(lowest, last + 1)]
    return np.stack(rows)
