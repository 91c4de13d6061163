"""Alikhanov's L2-1sigma on a graded mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from hpfracc._reading import number
from hpfracc.solvers.ode.graded import refuse_graded, solve_graded
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult
from hpfracc.solvers.ode.tensors.mesh import refuse_graded_tensors, solve_graded_tensors

__all__ = ["L2Sigma"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class L2Sigma(Method):
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

    grading: float | None = None

    name: ClassVar[str] = "l2_1sigma"
    aliases: ClassVar[tuple[str, ...]] = ("alikhanov", "graded_l2")
    order: ClassVar[str] = "2 on the graded mesh, for solutions like t^alpha too"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires one order below 1."""
        if problem.library != "numpy":
            return refuse_graded_tensors(problem, options, self.name)
        refusal = refuse_graded(problem, options, self.name)
        if refusal is None and problem.orders.single is None:
            return f"method={self.name!r} takes one order for all components; use method='l1'"
        return refusal

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        grading = self.grading
        if grading is None and problem.orders.single is not None:
            grading = min(2.0 / problem.orders.single, 10.0)
        if problem.library != "numpy":
            return solve_graded_tensors(problem, options, self.name, grading)
        assert grading is not None
        return solve_graded(problem, options, self.name, grading)
