"""Solves of NumPy arrays on graded meshes by L1 and L2-1sigma."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.compilation import refuse_compiled
from hpfracc.solvers.ode.differences import DifferenceTables, make_difference_tables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult

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

    def steps(newton: Newton, mesh: Array) -> Iterator[Array]:
        return _steps(problem, newton, name, mesh)

    return solve_on_mesh(problem, options, name, steps, grading=grading, history="exponentials")


def _steps(problem: Problem, newton: Newton, name: str, mesh: Array) -> Iterator[Array]:
    """The states after the steps of :mod:`hpfracc.solvers.ode.differences`, with Newton's method."""

    def solve(tau: float, known: Array, weight: Any, guess: Array) -> Array:
        solved = newton.solve(problem.t0 + tau, known, np.broadcast_to(weight, known.shape), guess)
        return np.full_like(known, np.nan) if solved is None else solved[0]

    order = row_orders(problem) if problem.orders.single is None else np.float64(problem.orders.single)
    y = np.array(problem.y0).reshape(-1)
    # D^alpha y = I^(1-alpha) y': the history is that of an integral of order 1 - alpha of y'.
    shortest, length = float(np.diff(mesh).min()), float(mesh[-1])
    memory = make_memory(1.0 - order, 0, shortest, length, _KERNEL, y, 1 if name == "l1" else 2)
    tables = make_difference_tables(name, order, mesh, y)
    one = step_l1 if name == "l1" else step_l2_sigma
    carried: tuple[Any, ...] = y, np.zeros_like(y), np.zeros((1, len(memory.rates), y.size), y.dtype)
    for n in range(len(mesh) - 1):
        row = DifferenceTables(*(None if each is None else each[n] for each in tables))
        carried = one(np, memory, solve, carried, row)
        if np.isnan(carried[0]).all():
            return
        yield carried[0]
