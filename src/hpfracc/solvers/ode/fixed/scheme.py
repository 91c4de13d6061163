"""Equal steps as sums over the past: weights, the arrays of a solve, and the first value."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.operators.core.sequences import power_difference, second_difference, tangent_defects
from hpfracc.solvers.ode.fixed.grid import UniformGrid, check_room, initial_part, order_groups, row_orders
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.singular import Powers
from hpfracc.solvers.stepping.system import StepFailedError

Array = np.ndarray[Any, Any]
Evaluate = Callable[[float, Array], Array]


@dataclass(slots=True, eq=False)
class Tableau:
    """The arrays of a solve, flat over batch and components.

    Attributes
    ----------
    weights : array, shape (K, U, N + 1)
        Weights for each of U distinct orders, scaled by the step.
    which : array of int or None, shape (rows,)
        Index of the order of each row; None if all share one.
    y, f : array, shape (rows, N + 1)
        Solution and right-hand side at the steps; where that is not kept, the solution twice.
    sums : array, shape (K, rows, N + 1)
        The history sums so far, including the initial data.
    rule : StepMethod or None
        The method, if its steps are sums over the past.
    known : int
        Number of points filled so far, including the initial one.
    powers : int
        Maximum number of initial powers of the solution that may be fitted to the first steps. Small if these steps are
        inaccurate, because the fit amplifies their errors.
    begins : Powers or None
        The powers of the starting weights, if there are any.
    beginning : callable or None
        The part of the solution that is not smooth at the start, as a function of the times after t0, if it is known.
    stepwise : bool
        Whether every step must be stored before the next one, because delayed states are read from here.
    """

    problem: Problem
    grid: UniformGrid
    weights: Array
    which: Array | None
    y: Array
    f: Array
    sums: Array
    rule: Any = None
    known: int = 1
    powers: int = 3
    begins: Powers | None = None
    beginning: Callable[[Array], Array] | None = None
    stepwise: bool = False

    def finite_until(self, first: int, stop: int) -> int:
        """The first of the points ``first .. stop-1`` at which solution or right-hand side is not finite, or stop."""
        y, f = np.isfinite(self.y[:, first:stop]), np.isfinite(self.f[:, first:stop])
        if y.all() and f.all():
            return stop
        return first + int(np.argmin((y & f).all(axis=0)))


def make_tableau(problem: Problem, grid: UniformGrid, rule: Any) -> Tableau:
    """The arrays of a solve, with the contribution of the initial data in every sum."""
    groups = order_groups(problem)
    check_room(problem, grid.count, len(groups))
    start = initial_part(problem, grid.elapsed())
    made = [[grid.step**alpha * each for each in rule.weights(NUMPY, alpha, grid.count)[0]] for alpha, _ in groups]
    weights = np.array(list(zip(*made, strict=True)))
    which = None if len(groups) == 1 else np.unique(row_orders(problem), return_inverse=True)[1].reshape(-1)
    sums = np.array([start] * len(weights))
    y = np.empty_like(start)
    y[:, 0] = start[:, 0]
    return Tableau(problem, grid, weights, which, y, np.zeros_like(start), sums, rule)


def evaluate_first(table: Tableau, evaluate: Evaluate) -> None:
    """Fill in ``f_0``."""
    t0 = table.grid.t0
    table.f[:, 0] = evaluate(t0, np.array(table.problem.y0)).reshape(-1)
    if not np.isfinite(table.f[:, 0]).all():
        raise StepFailedError(infinite_start(t0))


def infinite_start(t0: float) -> str:
    """The message if the right-hand side is not finite at the start."""
    return (
        f"The right-hand side is not finite at the start, t = {t0:g}: correct it there, or use "
        "method='implicit_rectangle', which does not need that value."
    )


def cached_weights(
    scheme: Hashable, alpha: float, n: int, make: Callable[[float, int], tuple[Array, ...]]
) -> tuple[Array, ...]:
    """``make(alpha, n)`` for step 1, cached by name and read-only."""

    def make_constant() -> tuple[Array, ...]:
        arrays = make(alpha, n)
        for array in arrays:
            array.setflags(write=False)
        return arrays

    found: tuple[Array, ...] = prepared_operands.get(("ode", scheme, alpha, n), make_constant)
    return found


def rectangle_weights(alpha: Any, n: int, xp: Namespace = NUMPY) -> Any:
    r"""``(k+1)^alpha - k^alpha`` over :math:`\Gamma(\alpha+1)`, k = 0 .. n-1, in the library ``xp`` of the order.

    Of shape (n,) + alpha.shape. One order of NumPy's is cached.
    """
    if isinstance(alpha, float):
        return cached_weights("rectangle", alpha, n, lambda alpha, n: (_make_rectangle(NUMPY, alpha, n),))[0]
    return _make_rectangle(xp, alpha, n)


def trapezoid_weights(alpha: Any, n: int, xp: Namespace = NUMPY) -> tuple[Any, Any]:
    r"""Weights of the product trapezoid over :math:`\Gamma(\alpha+2)`, and the additional weight of the first value."""
    if isinstance(alpha, float):
        weights, first = cached_weights("trapezoid", alpha, n, lambda *given: _make_trapezoid(NUMPY, *given))
        return weights, first
    return _make_trapezoid(xp, alpha, n)


def delayed(xp: Namespace, weights: Any) -> Any:
    """The weights one step later: 0 for the newest value, which is not known."""
    return xp.concatenate([0.0 * weights[:1], weights[:-1]])


def _lags(alpha: Any, first: float, n: int) -> Array:
    """The lags from ``first`` on, along a leading axis before those of the order."""
    return np.arange(first, n)[(slice(None), *(None,) * getattr(alpha, "ndim", 0))]


def _make_rectangle(xp: Namespace, alpha: Any, n: int) -> Any:
    one = xp.exp(0.0 * alpha)[None]  # of the order's shape
    return xp.concatenate([one, power_difference(xp, alpha, _lags(alpha, 1.0, n))]) * xp.rgamma(alpha + 1.0)


def _make_trapezoid(xp: Namespace, alpha: Any, n: int) -> tuple[Any, Any]:
    one, scale = xp.exp(0.0 * alpha)[None], xp.rgamma(alpha + 2.0)
    bends = [one, 2.0 * xp.expm1(alpha * math.log(2.0))[None], second_difference(xp, alpha + 1.0, _lags(alpha, 2.0, n))]
    weights = xp.concatenate(bends)[:n]
    if isinstance(alpha, float):
        first = -tangent_defects(NUMPY, alpha + 1.0, n)
    else:  # the rule is exact on constants: the weights sum to (alpha + 1) n^alpha
        whole = xp.concatenate([one, (alpha + 1.0) * xp.power(_lags(alpha, 1.0, n), alpha)])
        first = whole - xp.cumsum(weights, 0)
    # At the origin the integral is zero for any first value.
    return weights * scale, xp.concatenate([0.0 * one, first[1:]]) * scale
