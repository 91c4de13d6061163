"""L2-1sigma on graded meshes, for subdiffusion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc.solvers.pde.difference import DifferenceMethod, leading_order
from hpfracc.solvers.pde.method import register_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem

__all__ = ["DiffusionL2Sigma"]


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL2Sigma(DifferenceMethod):
    r"""L2-1sigma (Alikhanov): the equation at :math:`t_{n-1} + (1-\alpha/2)\tau_n`. Of order 2 on its graded mesh.

    :math:`t_j = T (j/N)^r` with :math:`r = 2/\alpha` by default; of order :math:`\min(2, r\alpha)` in general. It damps
    stiff modes only by :math:`\alpha/(2-\alpha)` per step, so use it for data that are compatible with the boundary,
    and L1 otherwise.

    Parameters
    ----------
    grading, memory, reaction, stabilisation
        As for :class:`DiffusionL1`.
    """

    name: ClassVar[str] = "l2_1sigma"
    order: ClassVar[str] = "2 on the graded mesh, min(2, r alpha) with grading r"
    parabola: ClassVar[bool] = True

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs a single order below 1."""
        if len(problem.orders) > 1:
            return "method='l2_1sigma' takes one derivative in time; use 'l1' or 'convolution_quadrature' for several"
        if problem.alpha_value >= 1.0:
            return f"method='l2_1sigma' takes orders below 1, and alpha={problem.alpha_value:g}"
        return None

    def exponent(self, problem: EvolutionProblem) -> float:
        """The grading at which the start has the same order as the rest."""
        return 2.0 / leading_order(problem) if self.grading is None else self.grading

    def place(self, alpha: Any) -> Any:
        """The point at which the formula gains one order."""
        return 1.0 - 0.5 * alpha

    def convergence(self, problem: EvolutionProblem) -> float:
        """``min(2, r alpha)``."""
        return min(2.0, max(0.3, self.exponent(problem) * leading_order(problem)))

    def reason(self, problem: EvolutionProblem) -> str:
        """Order 2."""
        return "it has order 2 on a graded mesh for subdiffusion with data that fit the boundary"
