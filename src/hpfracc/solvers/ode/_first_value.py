"""The value at the start: evaluated, checked, and weighed otherwise than the rest by the product trapezoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._fixed import StartError
from hpfracc.solvers.ode._scheme import Tableau
from hpfracc.solvers.ode._uniform import order_groups
from hpfracc.solvers.ode._weights import trapezoid_weights

__all__ = ["add_first_value", "evaluate_first"]

Array = np.ndarray[Any, Any]


def evaluate_first(table: Tableau, evaluate: Callable[[float, Array], Array]) -> None:
    """Fill in ``f_0``."""
    t0 = table.grid.t0
    table.f[:, 0] = evaluate(t0, np.array(table.problem.y0)).reshape(-1)
    if not np.isfinite(table.f[:, 0]).all():
        raise StartError(
            f"The right-hand side is not finite at the start, t = {t0:g}: mend it there, or use "
            "method='implicit_rectangle', which does not ask for that value."
        )


def add_first_value(table: Tableau, evaluate: Callable[[float, Array], Array], kind: int) -> None:
    """Evaluate ``f_0``, and add to ``sums[kind]`` what it weighs beyond the convolution."""
    grid = table.grid
    evaluate_first(table, evaluate)
    for alpha, mine in order_groups(table.problem):
        first = trapezoid_weights(alpha, grid.count)[1]
        table.sums[kind, mine] += grid.step**alpha * table.f[mine, :1] * first
