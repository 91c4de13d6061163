"""Weights of a plain order are computed once and cached; those of a traced order are computed on demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import Namespace, of_variables
from hpfracc.engine.execution.prepared import PreparedOperands
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples, real_dtype, step_power

#: Cache of weights of plain orders: room for at least three sequences for 1e7 points, or thirty for 1e6.
weight_cache = PreparedOperands()


def weights_key(scheme: Hashable, order: Order, n: int) -> Hashable:
    """The cache key of the weights of ``scheme`` for ``n`` points; None if the order is not a plain number."""
    return (scheme, order.value, n) if order.plain else None


def scaled_weights(
    scheme: Hashable,
    make: Callable[[Namespace, Any, Any], tuple[Any, ...]],
    order: Order,
    samples: Samples,
    sign: int,
    *,
    whole: int = 0,
    few: bool = False,
    strict: bool = False,
    points: int | None = None,
) -> tuple[tuple[Any, ...], Hashable, Any]:
    """The weights of a rule times ``step ** (sign (alpha + whole))``, the key of the first of them, and a factor.

    For a plain step and order the power is folded into the cached weights, and the returned factor is None. It is also
    folded into weights from a table, for a PyTorch order, which have the precision of the samples. Otherwise the factor
    is the power, and the caller multiplies by it.

    ``few`` as for :func:`weights_of`. With ``strict`` the first array is nan where a traced order is outside its
    interval. ``points`` is the number passed to ``make``, by default that of the samples.
    """
    n, step = samples.n if points is None else points, samples.grid.step
    plain_step = library_of(step) in ("numpy", "python")
    if not order.plain and order.xp.library == "torch" and plain_step and float(step) > 0.0:
        from hpfracc.operators.core.order_tables import tabulated_weights

        rate = sign * math.log(float(step))
        made = tabulated_weights(
            scheme, make, order, n, few, rate=rate, shift=whole * rate, strict=strict, dtype=real_dtype(samples.values)
        )
        if made is not None:
            return made, None, None
    exponent = sign * (order.value + whole) if whole else order.value if sign > 0 else -order.value
    if not order.plain or not plain_step:
        made = weights_of(scheme, make, order, n, few=few)
        if strict:
            with order.xp.scope():
                made = order.guard(made[0]), *made[1:]
        return made, weights_key(scheme, order, n), samples.scale(exponent)
    factor = step_power(step, exponent, samples.values)
    name = (scheme, factor)
    made = weights_of(name, lambda xp, a, n: tuple(array * factor for array in make(xp, a, n)), order, n)
    return made, weights_key(name, order, n), None


def weights_of(
    scheme: Hashable, make: Callable[[Namespace, Any, Any], tuple[Any, ...]], order: Order, n: int, *, few: bool = False
) -> tuple[Any, ...]:
    """``make(xp, alpha, n)``, a tuple of float64 arrays; cached, and read-only, for a plain order.

    With ``few`` it can also be called for selected :class:`Lags`, of which a table is cached for learned orders.
    """
    if not order.plain:
        from hpfracc.operators.core.order_tables import tabulated_weights

        tabulated = tabulated_weights(scheme, make, order, n, few)
        if tabulated is not None:
            return tabulated
        with order.xp.scope():
            found: tuple[Any, ...] = of_variables(order.xp, lambda alpha: make(order.xp, alpha, n))(order.value)
            return found

    def make_constant() -> tuple[np.ndarray[Any, Any], ...]:
        arrays = make(order.xp, order.value, n)
        for array in arrays:
            array.setflags(write=False)
        return arrays

    kept: tuple[Any, ...] = weight_cache.get((scheme, order.value, n), make_constant)
    return kept
