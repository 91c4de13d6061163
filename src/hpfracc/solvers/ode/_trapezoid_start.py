"""The first value weighs otherwise than the rest under the product trapezoid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._scheme import Tableau
from hpfracc.solvers.ode._uniform import row_orders
from hpfracc.solvers.ode._weights import trapezoid_weights

__all__ = ["add_first_value"]

Array = np.ndarray[Any, Any]


def add_first_value(table: Tableau, evaluate: Callable[[float, Array], Array], kind: int) -> None:
    """Evaluate ``f_0``, and add to ``sums[kind]`` what it weighs beyond the convolution."""
    grid = table.grid
    table.f[:, 0] = evaluate(grid.t0, np.array(table.problem.y0)).reshape(-1)
    orders = row_orders(table.problem)
    for alpha in np.unique(orders):
        mine = orders == alpha
        first = trapezoid_weights(float(alpha), grid.steps + 1)[1]
        table.sums[kind, mine] += grid.step**alpha * table.f[mine, :1] * first
