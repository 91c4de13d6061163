"""Orders that vary with time: implicit L1."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import gamma

from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.history.blocks import BLOCK
from hpfracc.operators.core.sequences import power_differences
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.fixed.scheme import Tableau
from hpfracc.solvers.ode.fixed.solve import walk_grid
from hpfracc.solvers.ode.mesh import without_estimate
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.newton import Newton, make_newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, RightHandSide
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["VariableOrder"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class VariableOrder(Method):
    r"""The Caputo derivative with an order that is a function of the current time, by the L1 rule.

    .. math:: D^{\alpha(t)} y(t) = \frac{1}{\Gamma(1-\alpha(t))} \int_{t_0}^{t} \frac{y'(s)}{(t-s)^{\alpha(t)}} ds
        \approx \frac{h^{-\alpha}}{\Gamma(2-\alpha)} \sum_{k=0}^{n-1} [(k+1)^{1-\alpha} - k^{1-\alpha}]
        (y_{n-k} - y_{n-k-1}), \quad \alpha = \alpha(t_n)

    with :math:`0 < \alpha(t) \le 1`, solved for :math:`y_n` by Newton's method. Order :math:`2 - \max\alpha` for
    smooth solutions, 1 for those that start like :math:`t^\alpha`. The weights change at every step, so a solve costs
    O(N^2). Implicit, and suitable for stiff equations. ``alpha(t)`` returns one order, or one for each component.
    :class:`VariableOrderGraded` reaches a tolerance with far fewer steps.

    References
    ----------
    C. F. Lorenzo, T. T. Hartley, Nonlinear Dyn. 29 (2002) 57-98; H. Sun, W. Chen, H. Wei, Y. Chen, Eur. Phys. J.
    Spec. Top. 193 (2011) 185-192.
    """

    name: ClassVar[str] = "variable_order"
    aliases: ClassVar[tuple[str, ...]] = ("variable_order_l1",)
    order: ClassVar[str] = "2 - max alpha; 1 for solutions like t^alpha"
    implicit: ClassVar[bool] = True
    search_limit: ClassVar[int] = 16384

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires a single equation in the Caputo derivative, with orders up to 1."""
        if problem.terms or problem.delays:
            return f"method={self.name!r} takes one derivative and no delays"
        if problem.derivative != "caputo":
            return f"method={self.name!r} takes Caputo's derivative, and not derivative={problem.derivative!r}"
        if problem.orders.ceiling > 1:
            return f"method={self.name!r} takes orders up to 1, and alpha exceeds 1"
        return refuse_compiled(options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Solve with new weights at each step."""
        started = time.perf_counter()
        assert options.step is not None
        grid = make_grid(problem.t0, problem.t1, options.step, options.max_steps)
        y = np.empty((problem.y0.size, grid.count), problem.dtype)
        y[:, 0] = problem.y0.reshape(-1)
        table = Tableau(problem, grid, np.empty((0, 0, 0)), None, y, np.zeros_like(y), np.empty((0, 0, 0)))
        decision = (self.name, "asked for", "direct")
        result = walk_grid(table, options, _Steps(table, options), BLOCK, decision, started)
        if result.success and options.estimate is not False:
            result.message += without_estimate(self.name)
        return result


class _Steps:
    """The steps, each with its own weights."""

    compiled = False
    compile_seconds = 0.0

    def __init__(self, table: Tableau, options: Options) -> None:
        problem = table.problem
        self.table = table
        self.notes: list[str] = []
        self.fun = RightHandSide(problem)
        self.newton: Newton | None = make_newton(problem, options, self.fun)
        #: Newest increment last, one row for each component.
        self.increments = np.zeros_like(table.y)

    @property
    def evaluations(self) -> int:
        return self.fun.count

    def start(self) -> None:
        problem = self.table.problem
        self.table.f[:, 0] = self.fun(problem.t0, np.array(problem.y0)).reshape(-1)

    def run(self, begin: int, first: int, stop: int, last: int) -> int:
        table, shape, newton = self.table, self.table.problem.shape, self.newton
        assert newton is not None
        h, function = table.grid.step, table.problem.orders.value
        for n in range(first, stop):
            t = table.grid.time(n)
            value = function(t) if callable(function) else function
            orders = np.broadcast_to(np.asarray(value, dtype=np.float64), shape).reshape(-1)
            if not np.all((orders > 0.0) & (orders <= 1.0)):
                raise InvalidInputError(f"alpha({t:g}) = {value!r}; this method takes orders above 0 and up to 1")
            past = np.array(table.y[:, n - 1])
            for order in np.unique(orders):
                mine = orders == order
                weights = power_differences(NUMPY, 1.0 - float(order), n)[:0:-1]
                past[mine] -= self.increments[mine, 1:n] @ weights
            weight = h**orders * gamma(2.0 - orders)
            found = newton.solve(t, past, weight, np.array(table.y[:, n - 1]))
            if found is None:
                table.known = n
                return n
            table.y[:, n], table.f[:, n] = found
            self.increments[:, n] = table.y[:, n] - table.y[:, n - 1]
        table.known = stop
        return stop
