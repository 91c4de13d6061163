"""L1 and L2-1sigma on graded meshes, for arrays of every library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._reading import number
from hpfracc.history.states import make_memory
from hpfracc.solvers.ode.differences import DifferenceTables, make_difference_tables, step_l1, step_l2_sigma
from hpfracc.solvers.ode.fixed.grid import row_orders
from hpfracc.solvers.ode.fixed.walk import solve_on_mesh
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.stepping.newton import Newton
from hpfracc.solvers.stepping.options import Options

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
    search_limit: ClassVar[int] = 1 << 15
    #: The order of accuracy on a mesh that is graded enough, minus a multiple of alpha.
    accuracy: ClassVar[tuple[float, float]]

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def grade(self, order: float) -> float:
        """r, as given or so that a solution like ``t^order`` does not reduce the order of accuracy; at most 10."""
        if self.grading is not None:
            return self.grading
        return min((self.accuracy[0] - self.accuracy[1] * order) / order, 10.0)

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """Of the largest error over the mesh; for rough solutions, as far as the mesh is graded."""
        full = self.accuracy[0] - self.accuracy[1] * alpha
        return min(full, self.grade(alpha) * alpha) if rough else full

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        known, name = problem.orders.known, self.name
        grading = self.grading if known is None else self.grade(float(known.min()))
        if problem.library != "numpy":
            from hpfracc.solvers.ode.tensors.mesh import solve_graded_tensors

            return solve_graded_tensors(problem, options, name, grading)
        assert grading is not None
        steps = partial(_steps, problem, name)
        return solve_on_mesh(problem, options, name, steps, grading=grading, history="exponentials")


def _steps(problem: Problem, name: str, newton: Newton, mesh: Array) -> Iterator[Array]:
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


@register_method
@final
@dataclass(frozen=True, slots=True)
class L1(GradedMethod):
    r"""The L1 scheme on the mesh :math:`t_j = t_0 + T (j/N)^r`, implicit, with the history as a sum of exponentials.

    .. math:: \frac{1}{\Gamma(1-\alpha)} \sum_{j=1}^{n} \frac{y_j - y_{j-1}}{t_j - t_{j-1}} \int_{t_{j-1}}^{t_j}
        (t_n - s)^{-\alpha} ds = f(t_n, y_n)

    Order :math:`\min(2-\alpha, r\alpha)` in the maximum error over the mesh for solutions that start like
    :math:`t^\alpha`; a uniform mesh (r = 1) has order alpha there. Monotone, and suitable for stiff equations. ``step``
    is the mean step. O(N log N) time. For PyTorch and JAX, on the device of ``y0``, with derivatives of the discrete
    equations with respect to ``y0``, the order, and everything that ``fun`` depends on. The mesh is held fixed: that r
    depends on the order by default is left out of the derivative in the order.

    Parameters
    ----------
    grading : float, optional
        r, at least 1; by default :math:`(2-\alpha)/\alpha` for the smallest order, at most 10; 4 if the order is traced
        by JAX.

    References
    ----------
    M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079.
    """

    name: ClassVar[str] = "l1"
    aliases: ClassVar[tuple[str, ...]] = ("graded_l1",)
    order: ClassVar[str] = "2 - alpha on the graded mesh, for solutions like t^alpha too"
    takes: ClassVar[frozenset[str]] = frozenset({"several orders"})
    accuracy: ClassVar[tuple[float, float]] = (2.0, 1.0)


@register_method
@final
@dataclass(frozen=True, slots=True)
class L2Sigma(GradedMethod):
    r"""Alikhanov's L2-1sigma scheme on the mesh :math:`t_j = t_0 + T (j/N)^r`, with a sum of exponentials.

    The equation is collocated at :math:`t_{n-\alpha/2}`, where linear interpolation gains one order: y is quadratic on
    each past interval and linear on the newest. Order :math:`\min(2, r\alpha)` in the maximum error over the mesh for
    solutions that start like :math:`t^\alpha`. Implicit; ``step`` is the mean step, and all components must have the
    same order. O(N log N) time. Like the trapezoidal rule it oscillates if a stiff transient is not resolved; L1 does
    not. PyTorch and JAX as for :class:`L1`.

    Parameters
    ----------
    grading : float, optional
        r, at least 1; by default :math:`2/\alpha`, at most 10; 4 if the order is traced by JAX.

    References
    ----------
    A. A. Alikhanov, J. Comput. Phys. 280 (2015) 424-438; H. Chen, M. Stynes, J. Sci. Comput. 79 (2019) 624-647, for
    graded meshes.
    """

    name: ClassVar[str] = "l2_1sigma"
    aliases: ClassVar[tuple[str, ...]] = ("alikhanov", "graded_l2")
    order: ClassVar[str] = "2 on the graded mesh, for solutions like t^alpha too"
    accuracy: ClassVar[tuple[float, float]] = (2.0, 0.0)
