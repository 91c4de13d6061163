"""Methods on graded meshes, L1 and L2-1sigma, for arrays of every library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hpfracc._reading import number
from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.differences import DifferenceTables, make_difference_tables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.method import Method
from hpfracc.solvers.ode.newton import Newton
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["GradedMethod"]

Array = np.ndarray[Any, Any]

#: Relative error of the kernel.
_KERNEL = 1e-14


@dataclass(frozen=True, slots=True)
class GradedMethod(Method):
    r"""L1 or L2-1sigma on the mesh :math:`t_j = t_0 + T (j/N)^r`, for arrays of every library.

    Parameters
    ----------
    grading : float, optional
        r, at least 1.
    """

    grading: float | None = None

    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True
    #: The order of accuracy on a mesh that is graded enough, minus a multiple of alpha.
    accuracy: ClassVar[tuple[float, float]]

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def grade(self, order: float) -> float:
        """r, as given or so that a solution like ``t^order`` does not reduce the order of accuracy; at most 10."""
        return (
            min((self.accuracy[0] - self.accuracy[1] * order) / order, 10.0) if self.grading is None else self.grading
        )

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        known, name = problem.orders.known, self.name
        grading = self.grading if known is None else self.grade(float(known.min()))
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.mesh import solve_graded_tensors

            return solve_graded_tensors(problem, options, name, grading)
        assert grading is not None

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
