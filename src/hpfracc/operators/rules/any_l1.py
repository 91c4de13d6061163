"""L1 on any grid: each weight computed where it is used, or by a sum of exponentials."""

from __future__ import annotations

from typing import Any, final

from hpfracc.engine.execution.api import exponential_recurrence, history_sum
from hpfracc.operators.core.fast_memory import fading_terms, power, refuse_traced_points, steps_of, times_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.values import Samples, constant, join, scalar
from hpfracc.operators.rules.differences import slopes, slopes_at_start
from hpfracc.operators.rules.first_points import first_points_on, head_of, whole_at_origin
from hpfracc.operators.rules.increments import start_points
from hpfracc.operators.rules.l1 import LType, fractional_part

__all__ = ["AnyGridL1", "FastL1"]


class _L1(LType):
    """Common part of both rules."""

    any_grid = True
    companion_suffices = False

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The same with a parabola on the newest interval."""
        return _Curved(self)

    def measured_from(self, order: Order) -> int:
        """Above order 1 ``n + 3``."""
        return 0 if order.ceiling <= 1 else start_points(order.ceiling) + 1

    def apply(self, samples: Samples, order: Order) -> Any:
        """The sum over the increments. Above order 1 the first points come from the first samples."""
        refuse_traced_points(samples, order)
        x, n = samples.values, order.ceiling
        g = x if n == 1 else slopes(x, samples.grid.times(), n - 1)
        increments = join([x[..., :1] - x[..., :1], g[..., 1:] - g[..., :-1]])
        value = self._sum(samples, order, increments)
        if not head_of(order)[0]:
            return value
        origin = whole_at_origin(x[..., :1] * 0, lambda: slopes_at_start(x, samples.grid.times(), n)[-1], order)
        head = first_points_on(samples, order, n, value) if n > 1 else []
        return join([origin, *head, value[..., len(head) + 1 :]])

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        raise NotImplementedError


@final
class AnyGridL1(_L1):
    r"""Caputo derivative of the piecewise linear interpolant, on any increasing grid.

    .. math::
        D^\alpha f(t_i) \approx \frac{1}{\Gamma(1-\beta)} \sum_{k=1}^{i} \frac{g_k - g_{k-1}}{t_k - t_{k-1}}
        \int_{t_{k-1}}^{t_k} (t_i - s)^{-\beta} ds,

    with :math:`g = f^{(n-1)}` (by differences of order 4 where :math:`n = \lceil\alpha\rceil > 1`) and
    :math:`\beta = \alpha - n + 1`. Order :math:`n + 1 - \alpha` in the largest step at a fixed t, for smooth f. On the
    graded grid :math:`t_j = T (j/N)^r` and for f that starts like :math:`t^s`, the error times
    :math:`t^\alpha` is :math:`O(N^{-\min(2-\alpha, rs)})` at every point, for :math:`0 < \alpha < 1`. Exactly zero on
    constants. The cost is one weight per pair of points.

    References
    ----------
    M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079.
    """

    name = "l1"
    cost = "O(n^2)"

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        part = fractional_part(order)
        with order.xp.scope():
            factor = order.guard(order.xp.rgamma(2.0 - part.value))
        # Scaled, because the plain mean is infinite at fractional part 1, which a differentiable integer order has.
        total = history_sum(
            times_of(samples), increments, -part.value, kernel="power", scaled=True, backend=samples.backend
        )
        return total * scalar(factor, samples.values)


@final
class FastL1(_L1):
    r"""The same sum with the kernel :math:`r^{-\beta}` as a sum of exponentials, except on the newest interval.

    :math:`O(\log(T/\tau) \log(1/\epsilon))` states replace the history, where :math:`\tau` is the smallest
    step. The relative error of the kernel is ``rtol`` (1e-10 by default), so the result differs from the direct sum by
    at most ``rtol`` times the sum of the absolute increments.

    References
    ----------
    S. Jiang, J. Zhang, Q. Zhang, Z. Zhang, Commun. Comput. Phys. 21 (2017) 650-678.
    """

    name = "fast"
    cost = "O(n log n)"

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        x, part = samples.values, fractional_part(order)
        steps, widths = steps_of(samples)
        with part.xp.scope():
            rates, weights = fading_terms(samples, part, part.value)
            newest = power(widths, -part.value, part) * order.guard(order.xp.rgamma(2.0 - part.value))
            factor = order.guard(order.xp.rgamma(1.0 - part.value))
        past = exponential_recurrence(
            rates, weights, steps, increments[..., 1:], degree=0, lagged=True, backend=samples.backend
        )
        tail = past * scalar(factor, x) + increments[..., 1:] * constant(newest, x)
        return join([x[..., :1] * 0, tail])


@final
class _Curved(_L1):
    r"""A rule plus the term of the parabola through the last three points, on the newest interval.

    .. math:: \frac{\beta\, \tau_i^{2-\beta}}{\Gamma(3-\beta)}\, g[t_{i-2}, t_{i-1}, t_i],
        \quad \tau_i = t_i - t_{i-1}.

    This is the leading error of L1 for smooth f. At a kink between two points it has the size of the error that the
    samples do not determine: every other sample may see none of it.
    """

    companion = None

    def __init__(self, rule: _L1) -> None:
        self.rule = rule
        self.name = rule.name  # type: ignore[misc]

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        x, part = samples.values, fractional_part(order)
        total = self.rule._sum(samples, order, increments)
        _, widths = steps_of(samples)
        with part.xp.scope():
            size = part.value * part.xp.rgamma(3.0 - part.value)
            effect = constant(power(widths[1:], 2.0 - part.value, part) * size, x)
        steps = constant(widths, x)
        rates = increments[..., 1:] / steps
        term = (rates[..., 1:] - rates[..., :-1]) / (steps[1:] + steps[:-1]) * effect
        return join([total[..., :2], total[..., 2:] + term])
