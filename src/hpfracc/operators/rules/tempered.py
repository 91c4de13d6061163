"""Tempered rules: a rule applied to ``exp(rate t) f`` and multiplied by ``exp(-rate t)``, without overflow."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, final

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import NUMPY, Namespace, namespace_of, of_variables
from hpfracc.engine.execution.api import unlogged
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import (
    Samples,
    add_from,
    constant,
    join,
    namespace_among,
    scalar,
    weights_key,
    weights_of,
    zeros,
)
from hpfracc.operators.rules.differences import start_points
from hpfracc.operators.rules.first_points import singular_origin, whole_at_origin
from hpfracc.operators.rules.quadrature import ConvolutionQuadrature

#: Maximum time constants by which a later sample may be ahead of the first points that use it.
STEEPEST = 40.0


@final
class Tempered(DelegatingRule):
    r"""A causal rule in which the weight of sample j at point k decays by :math:`e^{-\lambda(t_k-t_j)}`.

    .. math:: D^{\alpha,\lambda} f(t_k) \approx \sum_{j=0}^{k} e^{-\lambda (k-j) h} A_{kj}\, f_j,

    where A is the matrix of the rule. This equals the rule applied to :math:`e^{\lambda t} f` and multiplied by
    :math:`e^{-\lambda t}`, with the order of the rule for smooth f, but no factor exceeds 1, so nothing overflows for
    large :math:`\lambda t`. A is computed by applying the rule to a few unit samples; after the first columns it
    depends only on k - j. It acts on differences :math:`f_j - e^{-\lambda h} f_{j-1}`, repeated according to the order.
    Only the first points of orders above 1 use later samples, as those of the rule do. They are nan if these samples
    are more than 40 time constants ahead.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28.
    """

    def __init__(self, rule: Rule, rate: Any = 0.0, *, integral: bool = False, singular: bool = False) -> None:
        super().__init__(rule)
        self.rate = rate
        self.integral = integral
        self.singular = singular
        self.one_call = False  # type: ignore[misc]

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution, and one product for each of the first samples."""
        x, n = samples.values, samples.n
        m = 0 if self.integral else max(order.ceiling, 0)
        xp, ratio, (head, weights, *firsts), key = self._weights(samples, order, m)
        # In convolution quadrature an integral is a derivative of negative order.
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
            # Cast to the precision of the samples before slicing; see ``of_variables``.
            heads = [x[..., j : j + 1] * row for j, row in enumerate(constant(head, x))]
            value = join([sum(heads[1:], heads[0]) * scale, value[..., points:]])
        if self.singular:
            origin = singular_origin(samples, order, start_points(order.ceiling))
            value = join([whole_at_origin(origin, lambda: value[..., :1], order), value[..., 1:]])
        return value

    def _weights(self, samples: Samples, order: Order, m: int) -> tuple[Namespace, Any, tuple[Any, ...], Hashable]:
        """The namespace, the decay over one step, the decayed weights, and their cache key if all is plain."""
        n, step = samples.n, samples.grid.step
        count = min(n, self.rule.least_points(order) + 2)
        xp = namespace_among(order.value, self.rate, step)
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
        plain_decay = namespace_of(self.rate) is NUMPY and namespace_of(step) is NUMPY
        with xp.scope():
            # A plain decay stays a number. Traced values must be arguments of ``make``.
            factors = [
                float(to_host(one)) if namespace_of(one) is NUMPY else xp.array(one) for one in (self.rate, step)
            ]
            decay = factors[0] * factors[1]

            def make(*scalars: Any) -> tuple[Any, ...]:
                """Takes the order and the decay, each only if it is not plain."""
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
        """Weights of the first samples, by the rule at step 1, at the points that use later samples."""
        points, size = self.rule.head(order)
        if not points:
            return np.zeros((0, 0))
        xp, table = order.xp, self._of_units(np.eye(min(size, n)), order)[:, :points]
        with xp.scope():
            # An infinite value at the origin is set separately.
            return xp.where(abs(table) < math.inf, table, 0.0)

    def _columns(self, order: Order, n: int, m: int, count: int) -> Any:
        """The rule, at step 1, of the m-fold sum of a unit sample at 0 .. count; shape (count + 1, n)."""
        places = np.arange(n, dtype=np.float64) - np.arange(count + 1.0)[:, None]
        basis = np.where(places >= 0.0, 1.0, 0.0) if m else (places == 0.0).astype(np.float64)
        for _ in range(m - 1):
            basis = np.cumsum(basis, axis=1)
        xp, table = order.xp, self._of_units(basis, order)
        with xp.scope():
            if self.singular:
                table = xp.concatenate([xp.array(np.zeros((count + 1, 1))), table[:, 1:]], 1)
            # Before its sample a column contains only rounding errors of the transform.
            return xp.where(xp.array(places) >= 0.0, table, 0.0)

    def _of_units(self, basis: np.ndarray[Any, Any], order: Order) -> Any:
        """The rule of rows of samples at step 1."""
        xp, grid = order.xp, Grid(basis.shape[1], 0.0, 1.0)
        with unlogged(), xp.scope(), np.errstate(invalid="ignore"):
            return self.rule.apply(Samples(xp.array(basis), grid, "numpy" if order.plain else None), order)


def _decayed(xp: Namespace, head: Any, columns: Any, decay: Any) -> tuple[Any, ...]:
    """The weights of the first points, those of all later samples, and those of the first samples.

    Each of the last starts at its own point.
    """
    rows, points = head.shape
    if points:
        lead = xp.array(np.arange(rows, dtype=np.float64)[:, None] - np.arange(points))
        # With such a fast decay the samples cannot be extrapolated backwards.
        head = head * xp.exp(xp.where(decay * lead > STEEPEST, math.nan, decay * lead))
    count, n = columns.shape[0] - 1, columns.shape[1]
    fall = xp.exp(-decay * xp.array(np.arange(n, dtype=np.float64)))
    firsts = [columns[j, j:] * fall[: n - j] for j in range(min(count, n))]
    last = min(count, n)
    return (head, columns[count, last:] * fall[: n - last], *firsts)
