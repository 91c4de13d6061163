"""Common parts of the three tempered operators."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import known_values, read_scalar
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import as_values, constant, join, move_axis

__all__ = ["read_rate", "tempered_function"]

#: Points within this number of time constants are computed together: their values differ by at most e^4.
_TOGETHER = 4.0
#: Contributions from this number of time constants ago have decayed to 3e-20.
_FADED = 45.0
#: Largest number of groups of points; each needs its own polynomial.
_MAX_GROUPS = 1000


def read_rate(rate: Any) -> Any:
    """The rate of decay: a float, or a scalar of the caller's library that may carry a gradient."""
    return read_scalar("rate", rate, least=0.0)


def _known(rate: Any) -> float | None:
    known = known_values(rate)
    return None if known is None else float(known)


def tempered_function(function: Function, order: Order, rate: Any, method: str, *, initial_terms: bool) -> Outcome:
    """``exp(-rate t) D^alpha [exp(rate t) f]`` of a callable, in groups of points, which avoids overflow."""
    known = _known(rate)
    groups = [slice(0, len(function.points))] if not known else _groups(function.points, known)
    if len(groups) > _MAX_GROUPS:
        raise InvalidInputError(
            f"rate={known:g} on points up to {function.end - function.origin:g} beyond the origin needs {len(groups)} "
            f"polynomials, more than {_MAX_GROUPS}; ask for fewer points, or give samples"
        )
    found = [_of_group(function, order, rate, known, method, group, initial_terms) for group in groups]
    if len(found) == 1:
        return found[0]
    errors = [one.error for one in found if one.error is not None]
    return Outcome(
        join([one.value for one in found]),
        found[0].method if len({one.method for one in found}) == 1 else "graded",
        (lambda: max(error() for error in errors)) if len(errors) == len(found) else None,
        all(one.converged for one in found),
        f"{len(found)} groups of points; the last: {found[-1].message}",
        function.rtol,
        looked=all(one.looked for one in found),
    )


def _groups(points: np.ndarray[Any, Any], rate: float) -> list[slice]:
    groups, start = [], 0
    while start < len(points):
        stop = int(np.searchsorted(points, points[start] + _TOGETHER / rate, side="right"))
        groups.append(slice(start, stop))
        start = stop
    return groups


def _of_group(
    function: Function, order: Order, rate: Any, known: float | None, method: str, group: slice, initial_terms: bool
) -> Outcome:
    points = function.points[group]
    origin, power = function.origin, function.factor
    if known and points[0] - _FADED / known > origin:
        origin, power = float(points[0]) - _FADED / known, 0.0
    end = float(points[-1])
    xp = namespace_of(rate)

    def grown(distance: np.ndarray[Any, Any], values: Any) -> Any:
        """``exp(rate distance)``, to be multiplied with ``values``."""
        with xp.scope():
            return constant(xp.exp(xp.array(distance) * rate), values)

    def f(t: Any) -> Any:
        values = as_values(function.f(t))
        values = move_axis(values, function.axis, -1) if values.ndim > 1 else values
        return values * grown(to_host(t).astype(np.float64) - end, values)

    part = replace(function, f=f, points=points, origin=origin, factor=power, axis=-1)
    outcome = differentiate(part, order, method, initial_terms=initial_terms)
    # An infinite value at the origin is kept; 0 there does not become nan.
    factor = grown(end - points, outcome.value)
    error = outcome.error
    bound = math.exp((end - float(points[0])) * known) if known else 1.0
    return replace(
        outcome,
        value=outcome.value * factor,
        error=None if error is None or known is None else lambda: error() * bound,
        looked=outcome.looked and known is not None,
    )
