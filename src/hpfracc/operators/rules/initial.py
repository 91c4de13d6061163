"""Riemann-Liouville from Caputo: the same rule plus the initial terms."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.operators.core.fast_memory import power, reach_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.sequences import Lags, long_run
from hpfracc.operators.core.values import Samples, constant, join, replace_first
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.differences import slopes_at_start
from hpfracc.operators.rules.first_points import (
    first_points,
    first_points_on,
    infinite_at_origin,
    maybe_whole,
    rounding_at_origin,
    singular_origin,
    slope_at_origin,
    taylor_at_origin,
    whole_at_origin,
)
from hpfracc.operators.rules.increments import start_points

__all__ = ["WithInitialTerms", "make_terms"]


@final
class WithInitialTerms(DelegatingRule):
    r"""A rule for the Caputo derivative, plus the initial terms of Riemann-Liouville.

    .. math:: D^\alpha_{RL} f(t) = D^\alpha_C f(t)
        + \sum_{k=0}^{n-1} \frac{f^{(k)}(t_0)}{\Gamma(k+1-\alpha)} (t-t_0)^{k-\alpha}.

    The order is that of the Caputo rule, at a fixed t beyond the origin. Above order 1 the initial derivatives, and the
    first n + 2 points, come from the polynomial through the first n + 3 samples. At the origin itself the value is
    infinite, with the sign of f there (for 0 < alpha < 1), and 0 if the first sample is 0 (above order 1, if the
    derivatives below n are 0 too; nan if the samples do not determine that).
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.cost = rule.cost  # type: ignore[misc]
        self.any_grid = rule.any_grid  # type: ignore[misc]
        self.one_call = rule.one_call  # type: ignore[misc]

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """That of the Caputo rule, with the same terms."""
        found = self.rule.companion
        return None if found is None else WithInitialTerms(found)

    def apply(self, samples: Samples, order: Order) -> Any:
        """The Caputo rule plus one product for each initial term; up to order 1 its convolution adds the term."""
        x, n = samples.values, order.ceiling
        if self.any_grid:
            return self._apply_on(samples, order)
        if n == 1:
            return self._apply_up_to_one(samples, order)
        value = self.rule.apply(samples, order)
        terms, key, factor = scaled_weights(("initial", n), make_terms(n), order, samples, -1, few=True)
        last = start_points(n)
        tail = value[..., last:]
        for k, derivative in enumerate(taylor_at_origin(x, n, last)):
            term = constant(terms[k], x, None if key is None else (key, k))
            tail = tail + (derivative if factor is None else derivative * factor) * term[last:]
        origin = whole_at_origin(singular_origin(x, order, last), lambda: value[..., :1], order)
        return join([origin, first_points(samples, order, 0, last), tail])

    def _apply_up_to_one(self, samples: Samples, order: Order) -> Any:
        """One causal convolution, in which the first sample has starting weights, and the value at the origin."""
        rule: Any = self.rule
        if not maybe_whole(order):
            return rule.apply_with_term(samples, order, make_terms(1), partial(_with_origin, order))
        value = rule.apply_with_term(samples, order, make_terms(1), None)
        limit = singular_origin(samples.values, order, start_points(1))
        return join([whole_at_origin(limit, lambda: slope_at_origin(samples, order), order), value[..., 1:]])

    def _apply_on(self, samples: Samples, order: Order) -> Any:
        """The same on any grid."""
        x, n, points = samples.values, order.ceiling, samples.grid.times()
        value = self.rule.apply(samples, order)
        tail = value[..., 1:]
        reach = reach_of(samples, 1)
        slopes = slopes_at_start(x, points, n - 1)
        for k, slope in enumerate(slopes):
            with order.xp.scope():
                term = order.guard(order.xp.rgamma(k + 1.0 - order.value)) * power(reach, k - order.value, order)
            tail = tail + slope * constant(term, x)
        origin = whole_at_origin(self._origin_on(samples, order, slopes), lambda: value[..., :1], order)
        whole = join([origin, tail])
        if n == 1:
            return whole
        head = first_points_on(samples, order, 0, whole)
        return join([origin, *head, whole[..., len(head) + 1 :]])

    def _origin_on(self, samples: Samples, order: Order, slopes: list[Any]) -> Any:
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


def _with_origin(order: Order, result: Any, values: Any) -> Any:
    return replace_first(result, singular_origin(values, order, start_points(1)))


def make_terms(ceiling: int) -> Any:
    """The weights of the initial terms, as a function of the namespace, the order and the number of points."""

    def make(xp: Namespace, alpha: Any, n: int | Lags) -> tuple[Any, ...]:
        """``k! / Gamma(k + 1 - alpha) j^(k - alpha)`` at points j = 1 .. n-1 after a 0, for k below the ceiling."""
        points, zero = long_run(xp, 1, n), xp.array([0.0])
        return tuple(
            xp.concatenate([zero, math.factorial(k) * xp.rgamma(k + 1.0 - alpha) * xp.power(points, k - alpha)])
            for k in range(ceiling)
        )

    return make
