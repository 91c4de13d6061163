"""Difference schemes on graded meshes: common parts of L1 and L2-1sigma."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpfracc.history.states import ExponentialMemory
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.mesh import StepError, walk_mesh
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision

__all__ = ["DifferenceScheme", "refuse_graded", "solve_graded"]

Array = np.ndarray[Any, Any]

#: Relative error of the kernel.
_KERNEL = 1e-14


def refuse_graded(problem: Problem, options: Options, name: str) -> str | None:
    """Requires a single equation in the Caputo derivative, with orders below 1."""
    if problem.terms or problem.delays:
        return f"method={name!r} takes one derivative and no delays"
    if problem.derivative != "caputo":
        return f"method={name!r} takes Caputo's derivative, and not derivative={problem.derivative!r}"
    if problem.orders.known is None:
        return f"method={name!r} takes constant orders"
    if np.any(problem.orders.known >= 1.0):
        return f"method={name!r} takes orders below 1, and alpha reaches {float(problem.orders.known.max()):g}"
    return refuse_compiled(options, name)


class DifferenceScheme:
    """Keeps the history of y' as a sum of exponentials, and solves the equation of a step by Newton's method.

    Parameters
    ----------
    problem : Problem
        The equation.
    options : Options
        The tolerances; the equation of a step is solved to a fraction of them.
    length : float
        Length of the interval.
    coefficients : int
        Number of coefficients of the polynomials that approximate y'.
    """

    def __init__(self, problem: Problem, options: Options, length: float, coefficients: int) -> None:
        self.system = FlatSystem(problem)
        self.groups = self.system.groups
        self.orders = np.empty(self.system.size)
        for alpha, which in self.groups:
            self.orders[which] = alpha
        # D^alpha y = I^(1-alpha) y': the history is that of an integral of order 1 - alpha of y'.
        self.memories = [
            ExponentialMemory(1.0 - alpha, self.orders[which].size, length, _KERNEL, self.system.dtype, coefficients)
            for alpha, which in self.groups
        ]
        atol = np.broadcast_to(options.atol, problem.shape).reshape(-1) if np.ndim(options.atol) else options.atol
        self.newton = Newton(self.system, self.system.jacobian, self.system.components, options.rtol, atol)
        self.newton.price = self.system.slope_evaluations + 1
        self.gamma = np.array([math.gamma(1.0 - alpha) for alpha in self.orders])

    def remembered(self, distance: float) -> Array:
        """Contribution of the history to the derivative, at this distance after it."""
        total = np.zeros(self.system.size, self.system.dtype)
        for (_, which), memory in zip(self.groups, self.memories, strict=True):
            total[which] = memory.history(distance)
        return total

    def remember(self, step: float, coefficients: Array) -> None:
        """Add an interval to the history; y' is a polynomial in the relative distance from its right end."""
        for (_, which), memory in zip(self.groups, self.memories, strict=True):
            memory.advance(step, coefficients[:, which])

    def solve(self, tau: float, known: Array, weight: Array, guess: Array) -> Array:
        """Solve ``y = known + weight f(tau, y)``."""
        try:
            solved = self.newton.solve(tau, known, weight, guess)
            if solved is None:
                self.system(tau, guess)  # which may not be finite there
        except NotFiniteError as error:
            raise StepError(f"{error}: take a smaller step, or check the right-hand side there.") from None
        if solved is None:
            raise StepError(
                f"Newton's method did not converge at t = {self.system.problem.t0 + tau:g}: take a smaller step, give "
                "jac, or check that the right-hand side is smooth there."
            )
        return solved[0]


def solve_graded(
    problem: Problem,
    options: Options,
    name: str,
    grading: float,
    steps_of: Callable[[DifferenceScheme, Array], Iterator[Array]],
    coefficients: int,
) -> FODEResult:
    """Solve on the graded mesh, with as many steps as a uniform mesh with ``options.step``."""
    assert options.step is not None
    steps = make_grid(problem.t0, problem.t1, options.step).steps
    scheme = DifferenceScheme(problem, options, problem.t1 - problem.t0, coefficients)
    notes = (f"steps grow like those of t_j = T (j/{steps})^{grading:.4g}",)
    return walk_mesh(
        problem,
        options,
        steps,
        grading,
        lambda mesh: steps_of(scheme, mesh),
        SolveDecision(name, "asked for", "exponentials", False, notes),
        lambda: (scheme.system.nfev, scheme.system.njev),
    )
