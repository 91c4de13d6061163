"""Weights of a plain order are made once and kept; those of a traced order are made where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hpfracc.engine.execution.prepared import PreparedOperands
from hpfracc.operators._namespace import Namespace
from hpfracc.operators._order import Order

__all__ = ["kept_weights", "weights_key", "weights_of"]

#: Weights in bytes at most: three sequences for 1e7 points, or thirty for 1e6.
_CAPACITY = 256 * 2**20
kept_weights = PreparedOperands(_CAPACITY)


def weights_key(scheme: Hashable, order: Order, n: int) -> Hashable:
    """The name of the weights of ``scheme`` for ``n`` points; None where the order is no plain number."""
    return (scheme, order.value, n) if order.plain else None


def weights_of(
    scheme: Hashable, make: Callable[[Namespace, Any, int], tuple[Any, ...]], order: Order, n: int
) -> tuple[Any, ...]:
    """``make(xp, alpha, n)``, a tuple of float64 arrays; kept, and read-only, for a plain order."""
    if not order.plain:
        with order.xp.scope():
            return make(order.xp, order.value, n)

    def make_constant() -> tuple[np.ndarray[Any, Any], ...]:
        arrays = make(order.xp, order.value, n)
        for array in arrays:
            array.setflags(write=False)
        return arrays

    found: tuple[Any, ...] = kept_weights.get((scheme, order.value, n), make_constant)
    return found
