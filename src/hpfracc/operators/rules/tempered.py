"""A rule for samples, tempered: what it does to ``exp(rate t) f``, times ``exp(-rate t)``, without either factor."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, final

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import NUMPY, Namespace, namespace_of, of_variables
from hpfracc.engine.execution.api import unlogged
from hpfracc.operators.core.grids import Grid, to_host
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import Samples, add_from, constant, join, scalar, zeros
from hpfracc.operators.core.weights import weights_key, weights_of
from hpfracc.operators.rules.first_points import singular_origin, whole_at_origin
from hpfracc.operators.rules.increments import start_points
from hpfracc.operators.rules.quadrature import ConvolutionQuadrature

__all__ = ["Tempered"]

#: Time constants over which a later sample may be carried back to the first points.
_STEEPEST = 40.0


@final
class Tempered(DelegatingRule):
    r"""A causal rule with a decay :math:`e^{-\lambda(t_k-t_j)}` upon what sample j adds to point k.

    .. math:: D^{\alpha,\lambda} f(t_k) \approx \sum_{j=0}^{k} e^{-\lambda (k-j) h} A_{kj}\, f_j,

    where A is what the rule does to samples. This is the rule applied to :math:`e^{\lambda t} f` and multiplied with
    :math:`e^{-\lambda t}`, with the order of the rule for smooth f, but no factor is ever above 1: nothing overflows,
    however large :math:`\lambda t` is. A is found by applying the rule to a few unit samples, from some place on it
    depends on k - j alone, and it acts on differences :math:`f_j - e^{-\lambda h} f_{j-1}`, as often as the order asks.
    Only the first points of orders above 1 take later samples, as those of the rule do, and are nan where these lie
    more than 40 time constants ahead.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28.
    """

    def __init__(self, rule: Rule, rate: Any = 0.0, *, integral: bool = False, singular: bool = False) -> None:
        self.rule = rule
        self.rate = rate
        self.integral = integral
        self.singular = singular

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """That of the rule, tempered too."""
        other = self.rule.companion
        return None if other is None else self._like(other, self.rate)

    def at_rate(self, rate: Any) -> Tempered:
        """The same with this rate of decay."""
        return self._like(self.rule, rate)

    def _like(self, rule: Rule, rate: Any) -> Tempered:
        return Tempered(rule, rate, integral=self.integral, singular=self.singular)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution, and one product for each of the first samples."""
        x, n = samples.values, samples.n
        m = 0 if self.integral else max(order.ceiling, 0)
        xp, ratio, (head, weights, *firsts), key = self._weights(samples, order, m)
        # Convolution quadrature takes an integral for a derivative of negative order.
        positive = self.integral and not isinstance(self.rule, ConvolutionQuadrature)
        scale = samples.scale(order.value if positive else -order.value)
        changes = x * scale
        if m:
            with xp.scope():
                factor = scalar(ratio, x)
            for _ in range(m):
                changes = join([changes[..., :1], changes[..., 1:] - factor * changes[..., :-1]])
        count = len(firsts)
        value = zeros(changes, min(count, n))
        if n > count:
            value = join([value, samples.convolve(weights, changes[..., count:], key)])
        for j, first in enumerate(firsts):
            first = constant(first, x, None if key is None else (key, j))
            value = add_from(value, j, changes[..., j : j + 1] * first)
        points = head.shape[1]
        if points:
            # In the precision of the samples before it is taken apart; see ``of_variables``.
            heads = [x[..., j : j + 1] * row for j, row in enumerate(constant(head, x))]
            value = join([sum(heads[1:], heads[0]) * scale, value[..., points:]])
        if self.singular:
            origin = singular_origin(x, order, start_points(order.ceiling))
            value = join([whole_at_origin(origin, lambda: value[..., :1], order), value[..., 1:]])
        return value

    def _weights(self, samples: Samples, order: Order, m: int) -> tuple[Namespace, Any, tuple[Any, ...], Hashable]:
        """What they are written in, the decay over a step, the decayed weights, and their key if all is plain."""
        n, step = samples.n, samples.grid.step
        count = min(n, self.rule.least_points(order) + 2)
        xp = next((space for space in (order.xp, _space(self.rate), _space(step)) if space is not NUMPY), NUMPY)
        name = ("tempered", self.name, type(self.rule).__name__, self.integral, m)
        if xp is NUMPY:
            decay = float(self.rate) * float(to_host(step))
            scheme = (*name, decay)
            made = weights_of(
                scheme,
                lambda _, alpha, n: _decayed(NUMPY, self._head(order, n), self._columns(order, n, m, count), decay),
                order,
                n,
            )
            return xp, math.exp(-decay), made, weights_key(scheme, order, n)
        plain_decay = _space(self.rate) is NUMPY and _space(step) is NUMPY
        with xp.scope():
            # A plain decay stays a number: what is traced must come to ``make`` as an argument.
            factors = [float(to_host(one)) if _space(one) is NUMPY else xp.array(one) for one in (self.rate, step)]
            decay = factors[0] * factors[1]

            def make(*scalars: Any) -> tuple[Any, ...]:
                """From the order, unless it is plain, and the decay, unless that is."""
                fall = decay if plain_decay else scalars[-1]
                if order.plain:
                    scheme = (*name, "columns")
                    head, columns = weights_of(
                        scheme, lambda _, a, n: (self._head(order, n), self._columns(order, n, m, count)), order, n
                    )
                else:
                    traced = replace(order, value=scalars[0])
                    head, columns = self._head(traced, n), self._columns(traced, n, m, count)
                return _decayed(xp, xp.array(head), xp.array(columns), fall)

            variables = [*([] if order.plain else [order.value]), *([] if plain_decay else [decay])]
            ratio = math.exp(-decay) if plain_decay else xp.exp(-decay)
            return xp, ratio, of_variables(xp, make)(*variables), None

    def _head(self, order: Order, n: int) -> Any:
        """What each of the first samples weighs, by the rule at step 1, at the points that take later ones."""
        points, size = self.rule.head(order)
        if not points:
            return np.zeros((0, 0))
        xp, size = order.xp, min(size, n)
        with unlogged(), xp.scope(), np.errstate(invalid="ignore"):
            units = Samples(xp.array(np.eye(size)), Grid(size, 0.0, 1.0), "numpy" if order.plain else None)
            table = self.rule.apply(units, order)[:, :points]
            # An infinite value at the origin is put there by itself.
            return xp.where(abs(table) < math.inf, table, 0.0)

    def _columns(self, order: Order, n: int, m: int, count: int) -> Any:
        """What the rule, at step 1, gives for the m-fold sum of a unit sample at 0 .. count; shape (count + 1, n)."""
        places = np.arange(n, dtype=np.float64) - np.arange(count + 1.0)[:, None]
        basis = np.where(places >= 0.0, 1.0, 0.0) if m else (places == 0.0).astype(np.float64)
        for _ in range(m - 1):
            basis = np.cumsum(basis, axis=1)
        xp = order.xp
        with unlogged(), xp.scope(), np.errstate(invalid="ignore"):
            table = self.rule.apply(
                Samples(xp.array(basis), Grid(n, 0.0, 1.0), "numpy" if order.plain else None), order
            )
            if self.singular:
                table = xp.concatenate([xp.array(np.zeros((count + 1, 1))), table[:, 1:]], 1)
            # Before its sample a column is rounding of the transform.
            return xp.where(xp.array(places) >= 0.0, table, 0.0)


def _space(value: Any) -> Namespace:
    return namespace_of(value) if library_of(value) in ("torch", "jax") else NUMPY


def _decayed(xp: Namespace, head: Any, columns: Any, decay: Any) -> tuple[Any, ...]:
    """The weights of the first points, those that serve every later sample, and those of the first ones.

    Each of the last from its own point on.
    """
    rows, points = head.shape
    if points:
        lead = xp.array(np.arange(rows, dtype=np.float64)[:, None] - np.arange(points))
        # Over so steep a decay the samples cannot be continued backwards.
        head = head * xp.exp(xp.where(decay * lead > _STEEPEST, math.nan, decay * lead))
    count, n = columns.shape[0] - 1, columns.shape[1]
    fall = xp.exp(-decay * xp.array(np.arange(n, dtype=np.float64)))
    firsts = [columns[j, j:] * fall[: n - j] for j in range(min(count, n))]
    last = min(count, n)
    return (head, columns[count, last:] * fall[: n - last], *firsts)
