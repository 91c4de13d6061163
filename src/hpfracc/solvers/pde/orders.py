"""Orders in time: a single one, several with coefficients, or a distribution."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import is_array, library_of
from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import order_value
from hpfracc.operators._distributed_order import DistributedOrder
from hpfracc.solvers.pde.boundary import is_function


@dataclass(frozen=True, slots=True)
class VaryingOrder:
    """An order that differs between components, or varies in space or time.

    Attributes
    ----------
    at : callable
        ``at(t)``: a number, or an array: one for each component, or on the whole grid, as it is read; in an equation,
        one that broadcasts to a state.
    least, most : float
        The smallest order at the start, and the largest one of all.
    kind : {"components", "space", "time"}
        What it depends on; ``"space"`` also for functions of t and x.
    """

    at: Callable[[float], Any]
    least: float
    most: float
    kind: str


#: Times at which an order that is a function of t is looked at before the first step.
_LOOKS = 65


def read_varying(
    alpha: Any, t_span: tuple[float, float], places: tuple[Any, ...], components: int | None
) -> VaryingOrder | None:
    """An order for each component, or a function of t and of the coordinates; None for one order."""
    if isinstance(alpha, tuple | list) or (is_array(alpha) and len(alpha.shape) == 1 and alpha.shape[0] > 1):
        each = [float(checked_order(f"alpha[{number}]", one)) for number, one in enumerate(alpha)]
        if len(each) != components:
            have = "one equation" if components is None else f"{components} components"
            raise InvalidInputError(f"alpha has {len(each)} orders, and u0 has {have}; give one for each")
        orders = np.array(each)
        return VaryingOrder(lambda t: orders, min(each), max(each), "components")
    if not is_function(alpha) or isinstance(alpha, DistributedOrder):
        return None
    if hasattr(alpha, "definition"):
        raise InvalidInputError(f"alpha={_reading.shown(alpha)} is an operator; give its order, or a DistributedOrder")
    names = list(inspect.signature(alpha).parameters)
    in_time, axes = names[:1] == ["t"], ["x", "y", "z"][: len(places)]
    if names not in (["t"], axes, ["t", *axes]):
        raise InvalidInputError(
            f"alpha takes ({', '.join(names)}); name its arguments t or {', '.join(axes)}, or both, t first"
        )
    spread = places if len(names) > in_time else ()

    def at(t: float) -> Any:
        found = np.asarray(alpha(*([t] if in_time else []), *spread), dtype=float)
        bad = np.argwhere(~((found > 0.0) & (found <= 1.0)))
        if len(bad):
            index = tuple(bad[0])
            pairs = zip(axes, spread, strict=True) if spread else ()
            where = [f"t = {t:g}", *(f"{name} = {np.broadcast_to(one, found.shape)[index]:g}" for name, one in pairs)]
            raise InvalidInputError(f"alpha is {found[index]:g} at {', '.join(where)}; it has to be in (0, 1] to vary")
        return found if spread else float(found)

    looked = [at(float(t)) for t in np.linspace(*t_span, _LOOKS if in_time else 1)]
    most = max(float(np.max(one)) for one in looked)
    return VaryingOrder(at, float(np.min(looked[0])), most, "space" if spread else "time")


def read_orders(alpha: Any, terms: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """The derivatives on the left-hand side as (coefficient, order), largest order first; integrals below 0."""
    if isinstance(alpha, DistributedOrder):
        found = list(alpha.terms())
        if len(found) == 1:  # methods for one order take it without a coefficient
            found = [(0.5 * found[0][0], found[0][1])] * 2
        largest = found[0][1]
    else:
        found = [(1.0, checked_order("alpha", alpha))]
        largest = order_value(found[0][1])
    for pair in _reading.listed("terms", terms, "pairs (coefficient, order)"):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidInputError(f"terms holds {pair!r}; give pairs (coefficient, order)")
        coefficient = pair[0]
        integral = isinstance(pair[1], int | float) and -2.0 <= pair[1] < 0.0
        order = float(pair[1]) if integral else checked_order("an order of terms", pair[1])
        if not is_array(coefficient):
            _reading.number("terms: a coefficient", coefficient, least=None if integral else 0.0)
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
