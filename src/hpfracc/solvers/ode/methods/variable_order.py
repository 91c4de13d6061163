"""Orders that vary with time: implicit L1, and Alikhanov's scheme on a graded mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import rgamma

from hpfracc._xp import NUMPY
from hpfracc.errors import InvalidInputError
from hpfracc.history.intervals import IntervalWeights, orders_of_steps
from hpfracc.operators.core.sequences import power_differences
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.methods.graded import GradedMethod
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.stepping.newton import Newton
from hpfracc.solvers.stepping.options import Options

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
    takes: ClassVar[frozenset[str]] = frozenset({"several orders", "variable orders", "order 1"})

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """2 - alpha, or 1 at a fixed t for rough solutions."""
        return 1.0 if rough else 2.0 - alpha

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step, with new weights."""
        return solve_on_mesh(problem, options, self.name, partial(_steps, problem, False))


@register_method
@final
@dataclass(frozen=True, slots=True)
class VariableOrderGraded(GradedMethod):
    r"""The Caputo derivative with an order :math:`\alpha(t)` of the current time, by L2-1sigma on a graded mesh.

    As :class:`L2Sigma`, with a new order and collocation point :math:`t_{n-\alpha/2}` at each step. Order 2 in the
    maximum error over the mesh if :math:`\alpha(t)` is smooth, also for solutions that start like :math:`t^\alpha`.
    ``alpha(t)`` returns one order for all components,
    :math:`0 < \alpha(t) \le 1`. The weights change at every step, so a solve costs O(N^2). ``step`` is the mean step.

    Parameters
    ----------
    grading : float, optional
        r of the mesh :math:`t_j = t_0 + T (j/N)^r`, at least 1; by default :math:`2/\alpha(t_0)`, at most 10.

    References
    ----------
    A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; R. Du, A. A. Alikhanov, Z.-Z. Sun, Comput. Math. Appl. 79
    (2020) 2952-2972, for variable orders.
    """

    name: ClassVar[str] = "variable_order_l2"
    aliases: ClassVar[tuple[str, ...]] = ("variable_order_graded",)
    order: ClassVar[str] = "2 on the graded mesh for smooth orders, for solutions like t^alpha too"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    search_limit: ClassVar[int] = 8192
    takes: ClassVar[frozenset[str]] = frozenset({"variable orders", "order 1"})
    accuracy: ClassVar[tuple[float, float]] = (2.0, 0.0)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step, with new weights."""
        grading = self.grade(float(_orders(problem, problem.t0)[0]))
        return solve_on_mesh(problem, options, self.name, partial(_steps, problem, True), grading=grading)


def _orders(problem: Problem, t: float) -> Array:
    """The orders of all components at a time."""
    value = problem.orders.value
    found = value(t) if callable(value) else value
    orders = np.broadcast_to(np.asarray(found, dtype=np.float64), problem.shape).reshape(-1)
    if not np.all((orders > 0.0) & (orders <= 1.0)):
        raise InvalidInputError(f"alpha({t:g}) = {found!r}; this method takes orders above 0 and up to 1")
    return orders


def _steps(problem: Problem, parabola: bool, newton: Newton, mesh: Array) -> Iterator[Array]:
    """Steps of ``sum_k A[n, k] (y_k - y_(k-1)) = f(t*, y*)``, with y* between the last two states."""
    y, slope = np.array(problem.y0).reshape(-1), 0.0 * np.array(problem.y0).reshape(-1)
    increments = np.zeros((len(mesh) - 1, y.size), y.dtype)
    weights = IntervalWeights([], mesh, parabola=True)
    each, places = orders_of_steps(lambda t: _orders(problem, problem.t0 + t), mesh, parabola=parabola)
    for n, (before, now) in enumerate(pairwise(mesh)):
        orders, sigma = each[n], float(places[n])
        past, own = np.zeros_like(y), np.empty(y.size)
        for order in set(orders.tolist()):
            mine = orders == order
            if parabola:
                weights.orders, weights.sigma = [(1.0, order)], sigma
                row = weights.rows(n + 1, n + 2)[0]
            else:  # equal steps
                row = power_differences(NUMPY, 1.0 - order, n + 1)[::-1] * (mesh[1] ** -order * rgamma(2.0 - order))
            past[mine], own[mine] = row[:-1] @ increments[:n, mine], row[-1]
        at, weight = problem.t0 + before + sigma * (now - before), sigma / own
        solved = newton.solve(at, y - weight * past, weight, y + sigma * (now - before) * slope)
        if solved is None:
            return
        increments[n] = (solved[0] - y) / sigma
        y, slope = y + increments[n], increments[n] / (now - before)
        yield y
