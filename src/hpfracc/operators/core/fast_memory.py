"""Common parts of the rules for any grid: times that may carry a gradient, steps, and decaying terms of a power."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc._xp import of_variables
from hpfracc.engine.execution.api import history_sum
from hpfracc.engine.primitives.base import ArraySpec
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import exponential_nodes, exponential_sum, node_weights
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.values import Samples

__all__ = [
    "FAST_RTOL",
    "fading_terms",
    "hint_at_fast",
    "power",
    "reach_of",
    "refuse_traced_points",
    "steps_of",
    "times_of",
]

#: Default relative error of the kernel.
FAST_RTOL = 1e-10
#: Range of powers for a traced order, whose value is unknown.
_TRACED = (0.02, 1.0)


#: Number of points from which the time of a direct sum is predicted, and the seconds from which a hint is logged.
_ASKED_FROM, _LONG = 8192, 1.0
_hinted: set[str] = set()
_log = logging.getLogger("hpfracc")


def hint_at_fast(operator: Any, samples: Samples) -> None:
    """Log, once per operator, that a direct sum on a non-uniform grid takes long, and what is faster."""
    name = type(operator).__name__
    if samples.n < _ASKED_FROM or samples.grid.uniform or name in _hinted or "fast" not in operator.any_grid_rules:
        return
    specs = ArraySpec((samples.n,), "float64"), ArraySpec((), "float64")
    chosen = history_sum.decide(specs[0], samples.values, specs[1], backend=samples.backend).chosen
    if chosen is not None and chosen.total > _LONG:
        _hinted.add(name)
        _log.warning(
            "%s of %d samples on a grid that is not uniform is predicted to take %.1f s; method='fast' takes time in "
            "proportion to the number of samples, with a relative error of %g in the kernel (rtol=)",
            name,
            samples.n,
            chosen.total,
            FAST_RTOL,
        )


def reset_hints() -> None:
    """Allow all hints again."""
    _hinted.clear()


def times_of(samples: Samples) -> Any:
    """The points, with their gradient if they carry one."""
    grid = samples.grid
    return grid.times() if grid.traced is None else grid.traced


def reach_of(samples: Samples, first: int) -> Any:
    """The distances from the origin of the points from index ``first`` on, with their gradient."""
    times = times_of(samples)
    return times[first:] - times[0]


def power(base: Any, exponent: Any, order: Order) -> Any:
    """``base ** exponent`` of positive numbers, both of which may carry a gradient; in double precision."""
    if library_of(base) == "torch":
        return base.double() ** exponent
    if library_of(base) == "jax":
        return base.astype("float64") ** exponent
    return order.xp.power(base, exponent)


def refuse_traced_points(samples: Samples, order: Order) -> None:
    """Raise an error if the gradient with respect to the points would be incomplete."""
    if samples.grid.traced is not None and order.ceiling > 1:
        raise InvalidInputError(
            f"t carries a gradient, which orders above 1 do not support on this grid (alpha={order.known}); "
            "detach t, or use an order of at most 1"
        )


def steps_of(samples: Samples) -> tuple[Any, Any]:
    """The steps as used by a recurrence (one number on a uniform grid), and each step separately."""
    grid = samples.grid
    if grid.traced is not None:
        widths = grid.traced[1:] - grid.traced[:-1]
        return widths, widths
    widths = np.diff(grid.times())
    if grid.uniform and np.ndim(grid.step) == 0 and isinstance(grid.step, float):
        return grid.step, np.full(grid.n - 1, grid.step)
    return widths, widths


def fading_terms(samples: Samples, order: Order, beta: Any) -> tuple[Any, Any]:
    """Rates and weights of ``r**-beta`` for all distances on the grid, where ``beta`` depends on ``order``.

    A plain order has few terms; one that carries a gradient has more, at nodes that do not depend on it.
    """
    points = samples.grid.times()
    shortest, longest = float(np.diff(points).min()), float(points[-1] - points[0])
    rtol = FAST_RTOL if samples.rtol is None else samples.rtol
    if order.plain:
        found = exponential_sum(float(beta), shortest, longest, rtol)
        return found.rates, found.weights
    least, most = _TRACED if order.known is None else (known := _read(beta), known)
    nodes = exponential_nodes(least, most, shortest, longest, rtol)
    weights = of_variables(order.xp, lambda beta: node_weights(order.xp, beta, nodes))(beta)
    if order.known is None:
        weights = order.xp.where((beta >= least) & (beta <= most), weights, math.nan)
    return nodes.rates, weights


def _read(beta: Any) -> float:
    return float(beta.detach() if hasattr(beta, "detach") else beta)
