"""L1-2: piecewise quadratic interpolation under the Caputo derivative."""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.sequences import Lags, power_differences, previous, trapezoid_defects
from hpfracc.operators.rules.l1 import L1Rule, UniformLType

__all__ = ["L12"]


@final
class L12(UniformLType):
    r"""Caputo derivative of a piecewise quadratic interpolant: the default for samples.

    On every interval but the first the quadratic goes through its two ends and the point before:

    .. math::
        D^\alpha f(t_k) \approx \frac{h^{-\beta}}{\Gamma(2-\beta)} \Big[ \sum_{j=1}^{k} a_{k-j}\,\delta_j
        + \sum_{j=2}^{k} b_{k-j}\,(\delta_j - \delta_{j-1}) \Big], \quad \delta_j = g_j - g_{j-1},

    with :math:`a_l` of L1, :math:`b_l = \int_l^{l+1} s^{1-\beta} ds - \tfrac12 (l^{1-\beta} + (l+1)^{1-\beta})`,
    :math:`g = f^{(n-1)}` and :math:`\beta = \alpha - n + 1`. Order :math:`3 - \beta = n + 2 - \alpha` at a fixed t for
    f with n + 2 continuous derivatives; one less at the first point after the origin, where interpolation is linear.
    For f that starts like :math:`t^s` it is :math:`1 + s` at a fixed t, and there is no convergence at the first
    points. Exactly zero on constants. Its difference from L1 is a safe error estimate, because it is the error of L1.
    Above order 1 the first n + 2 points come from the polynomial through the first n + 3 samples, with an error of
    :math:`O(h^{n+3-\alpha})`.

    References
    ----------
    G. Gao, Z. Sun, H. Zhang, J. Comput. Phys. 259 (2014) 33-50.
    """

    name = "l1-2"
    companion = L1Rule()

    def accuracy(self, alpha: float) -> float:
        """``n + 2 - alpha``."""
        return math.ceil(alpha) + 2 - alpha

    def measured_from(self, order: Order) -> int:
        """Two, the end of the first quadratic, and ``n + 3`` above order 1."""
        return self.least_points(order)

    @staticmethod
    def make(xp: Namespace, beta: Any, n: int | Lags) -> tuple[Any, Any]:
        """The weights of the increments, and the correction for the first one, where interpolation is linear."""
        scale = xp.rgamma(2.0 - beta)
        line = power_differences(xp, 1.0 - beta, n) * scale
        bend = trapezoid_defects(xp, 1.0 - beta, n) * scale
        last = bend[:-1] if isinstance(n, int) else trapezoid_defects(xp, 1.0 - beta, previous(n)) * scale
        before = xp.concatenate([xp.array([0.0]), last])
        return line + bend - before, -before.reshape(1, -1)
