"""Derivatives of integer order by backward differences."""

from __future__ import annotations

import math
from typing import Any, final

from numpy.polynomial import polynomial as poly

from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, join
from hpfracc.operators.rules.increments import (
    DIFFERENCE_ORDER,
    backward_series,
    backward_size,
    binomial_polynomial,
    forward_differences,
)

__all__ = ["Differences"]


@final
class Differences(Rule):
    r"""The derivative of integer order m by backward differences of order 4, common to all definitions.

    .. math:: h^m f^{(m)}(t_k) \approx \sum_{i=0}^{3} c_i \nabla^{m+i} f_k, \quad
        \Big(\sum_{i \ge 1} z^i / i\Big)^m = z^m \sum_i c_i z^i.

    The first m + 3 points use the polynomial through the first m + 4 samples, with the same order. For m = 0 the
    result is the samples.
    """

    name = "differences"
    cost = "O(n)"

    def accuracy(self, alpha: float) -> float:
        """4; order 0 is exact."""
        return float(DIFFERENCE_ORDER)

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
        v = x
        for _ in range(m):
            v = v[..., 1:] - v[..., :-1]
        last = m + DIFFERENCE_ORDER - 1
        total = v[..., DIFFERENCE_ORDER - 1 :]
        for factor in backward_series(m)[1:]:
            v = v[..., 1:] - v[..., :-1]
            total = total + factor * v[..., v.shape[-1] - total.shape[-1] :]
        differences = forward_differences(x[..., : last + 1])
        head = []
        for k in range(last):
            slopes = [float(poly.polyval(k, poly.polyder(binomial_polynomial(i), m))) for i in range(m, last + 1)]
            terms = [slope * differences[m + i] for i, slope in enumerate(slopes)]
            head.append(sum(terms[1:], terms[0]))
        return join([*head, total]) * samples.scale(-m)
