"""Orders in time: a single one, several with coefficients, or a distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpfracc import _reading
from hpfracc._arrays import is_array, library_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import order_value
from hpfracc.operators._distributed_order import DistributedOrder

__all__ = ["checked_order", "read_orders"]


def read_orders(alpha: Any, terms: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """The derivatives on the left-hand side as (coefficient, order), largest order first."""
    if isinstance(alpha, DistributedOrder):
        found = list(alpha.terms())
        largest = found[0][1]
    else:
        found = [(1.0, checked_order("alpha", alpha))]
        largest = order_value(found[0][1])
    for pair in _reading.listed("terms", terms, "pairs (coefficient, order)"):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidInputError(f"terms holds {pair!r}; give pairs (coefficient, order)")
        coefficient, order = pair[0], checked_order("an order of terms", pair[1])
        if not is_array(coefficient):
            _reading.number("terms: a coefficient", coefficient, least=0.0)
        if order_value(order) >= largest:
            raise InvalidInputError(
                f"terms: order {order_value(order):g} is not below the leading one, {largest:g}; put the largest into "
                "alpha="
            )
        found.append((coefficient, order))
    return tuple(found)


def checked_order(name: str, value: Any, *, one_sided: bool = False) -> Any:
    """An order in (0, 2]; below 2 and not 1 for a one-sided term. One that carries a gradient stays an array."""
    known = value
    if is_array(value) and library_of(value) != "numpy":
        if tuple(value.shape) not in ((), (1,)):
            raise InvalidInputError(f"{name} has shape {tuple(value.shape)}; give one number")
        known = order_value(value)
        if math.isnan(known):
            return value
    else:
        known = value = _reading.number(name, value)
    if not 0.0 < known <= 2.0 or (one_sided and known in (1.0, 2.0)):
        span = "(0, 2), and not 1" if one_sided else "(0, 2]"
        raise InvalidInputError(f"{name}={known:g} has to be in {span}")
    return value
