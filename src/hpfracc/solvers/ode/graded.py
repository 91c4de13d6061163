"""Solves of NumPy arrays on graded meshes by L1 and L2-1sigma."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.adaptive.system import FlatSystem, NotFiniteError
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.differences import DifferenceTables, make_difference_tables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.fixed.grid import make_grid
from hpfracc.solvers.ode.mesh import StepError, walk_mesh
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, SolveDecision

__all__ = ["refuse_graded", "solve_graded"]

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


def solve_graded(problem: Problem, options: Options, name: str, grading: float) -> FODEResult:
    """Solve on the graded mesh, with as many steps as a uniform mesh with ``options.step``."""
    assert options.step is not None
    steps = make_grid(problem.t0, problem.t1, options.step).steps
    system = FlatSystem(problem)
    notes = (f"steps grow like those of t_j = T (j/{steps})^{grading:.4g}",)
    return walk_mesh(
        problem,
        options,
        steps,
        grading,
        lambda mesh: _steps(system, options, name, mesh),
        SolveDecision(name, "asked for", "exponentials", False, notes),
        lambda: (system.nfev, system.njev),
    )


def _steps(system: FlatSystem, options: Options, name: str, mesh: Array) -> Iterator[Array]:
    """The states after the steps of :mod:`hpfracc.solvers.ode.differences`, with Newton's method."""
    atol = np.broadcast_to(options.atol, system.shape).reshape(-1) if np.ndim(options.atol) else options.atol
    newton = Newton(system, system.jacobian, system.components, options.rtol, atol)
    newton.price = system.slope_evaluations + 1

    def solve(tau: float, known: Array, weight: Any, guess: Array) -> Array:
        try:
            solved = newton.solve(tau, known, np.broadcast_to(weight, known.shape), guess)
            if solved is None:
                system(tau, guess)  # which may not be finite there
        except NotFiniteError as error:
            raise StepError(f"{error}: take a smaller step, or check the right-hand side there.") from None
        if solved is None:
            raise StepError(
                f"Newton's method did not converge at t = {system.problem.t0 + tau:g}: take a smaller step, give "
                "jac, or check that the right-hand side is smooth there."
            )
        return solved[0]

    orders = np.empty(system.size)
    for alpha, which in system.groups:
        orders[which] = alpha
    order = orders if len(system.groups) > 1 else orders[0]
    y = system.start(0.0).astype(system.dtype)
    # D^alpha y = I^(1-alpha) y': the history is that of an integral of order 1 - alpha of y'.
    shortest, length = float(np.diff(mesh).min()), float(mesh[-1])
    memory = make_memory(1.0 - order, 0, shortest, length, _KERNEL, y, 1 if name == "l1" else 2)
    tables = make_difference_tables(name, order, mesh, y)
    one = step_l1 if name == "l1" else step_l2_sigma
    carried: tuple[Any, ...] = y, np.zeros_like(y), np.zeros((1, len(memory.rates), y.size), y.dtype)
    for n in range(len(mesh) - 1):
        row = DifferenceTables(*(None if each is None else each[n] for each in tables))
        carried = one(np, memory, solve, carried, row)
        yield carried[0]
