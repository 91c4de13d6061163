"""L1 on a graded mesh."""

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

__all__ = ["L1"]


@register_method
@final
@dataclass(frozen=True, slots=True)
class L1(Method):
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

    grading: float | None = None

    name: ClassVar[str] = "l1"
    aliases: ClassVar[tuple[str, ...]] = ("graded_l1",)
    order: ClassVar[str] = "2 - alpha on the graded mesh, for solutions like t^alpha too"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})
    implicit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.grading is not None:
            number("grading", self.grading, least=1.0)  # 1 is a uniform mesh

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires orders below 1."""
        if problem.library != "numpy":
            return refuse_graded_tensors(problem, options, self.name)
        return refuse_graded(problem, options, self.name)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """One implicit equation per step."""
        grading = self.grading
        if grading is None and problem.orders.known is not None:
            least = float(problem.orders.known.min())
            grading = min((2.0 - least) / least, 10.0)
        if problem.library != "numpy":
            return solve_graded_tensors(problem, options, self.name, grading)
        assert grading is not None
        return solve_graded(problem, options, self.name, grading)
