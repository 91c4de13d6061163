"""Riemann-Liouville from Caputo on any grid: the same rule plus the initial terms."""

from __future__ import annotations

from typing import Any, final

from hpfracc.operators.core.fast_memory import power, reach_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import Samples, constant, join
from hpfracc.operators.rules.any_slopes import slopes_at_start
from hpfracc.operators.rules.first_points import (
    first_points_on,
    infinite_at_origin,
    rounding_at_origin,
    whole_at_origin,
)
from hpfracc.operators.rules.increments import start_points

__all__ = ["AnyGridInitialTerms"]


@final
class AnyGridInitialTerms(DelegatingRule):
    r"""A rule for the Caputo derivative on any grid, plus the initial terms of Riemann-Liouville.

    .. math:: D^\alpha_{RL} f(t) = D^\alpha_C f(t)
        + \sum_{k=0}^{n-1} \frac{f^{(k)}(t_0)}{\Gamma(k+1-\alpha)} (t-t_0)^{k-\alpha}.

    The order is that of the Caputo rule, at a fixed t beyond the origin. Above order 1 the initial derivatives, and the
    first n + 2 points, come from the first n + 3 samples. At the origin itself the value is infinite, with the sign of
    f there (for 0 < alpha < 1), and 0 if the first sample is 0 (above order 1, if the derivatives below n are 0 too;
    nan if the samples do not determine that).
    """

    any_grid = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.cost = rule.cost  # type: ignore[misc]

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """That of the Caputo rule, with the same terms."""
        found = self.rule.companion
        return None if found is None else AnyGridInitialTerms(found)

    def apply(self, samples: Samples, order: Order) -> Any:
        """The Caputo rule plus one product for each initial term."""
        x, n, points = samples.values, order.ceiling, samples.grid.times()
        value = self.rule.apply(samples, order)
        tail = value[..., 1:]
        reach = reach_of(samples, 1)
        slopes = slopes_at_start(x, points, n - 1)
        for k, slope in enumerate(slopes):
            with order.xp.scope():
                term = order.guard(order.xp.rgamma(k + 1.0 - order.value)) * power(reach, k - order.value, order)
            tail = tail + slope * constant(term, x)
        origin = whole_at_origin(self._origin(samples, order, slopes), lambda: value[..., :1], order)
        whole = join([origin, tail])
        if n == 1:
            return whole
        head = first_points_on(samples, order, 0, whole)
        return join([origin, *head, whole[..., len(head) + 1 :]])

    def _origin(self, samples: Samples, order: Order, slopes: list[Any]) -> Any:
        """The value at the origin from the derivatives below order n, in units of the first step."""
        x, n, points = samples.values, order.ceiling, samples.grid.times()
        if n == 1:
            return infinite_at_origin(x[..., :1], order, [])
        last, unit = start_points(n), float(points[1] - points[0])
        fewer = slopes_at_start(x, points[:last], n - 1)
        told = [
            (slope * unit**k, abs(slope - other) * unit**k)
            for k, (slope, other) in enumerate(zip(slopes, fewer, strict=True))
        ]
        return infinite_at_origin(x[..., :1], order, told[1:], rounding_at_origin(x, last))
