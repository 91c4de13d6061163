"""L1 on graded meshes, for subdiffusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

from hpfracc.solvers.pde.difference import DifferenceMethod, leading_order
from hpfracc.solvers.pde.method import register_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem, order_value

__all__ = ["DiffusionL1"]


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL1(DifferenceMethod):
    r"""L1: u is linear on each step. Of order :math:`2 - \alpha` on its graded mesh, also for rough data.

    :math:`t_j = T (j/N)^r` with :math:`r = (2-\alpha)/\alpha` by default. On a uniform mesh (``grading=1``) the largest
    error is of order :math:`\alpha`, and the error at a fixed time of order 1. It damps stiff modes, unlike L2-1sigma.
    For orders up to 1 (where it is backward Euler), and for sums of derivatives.

    Parameters
    ----------
    grading : float, optional
        The exponent r.
    memory : {"auto", "direct", "exponentials"}
        How the history is summed.
    reaction : {"newton", "imex"}
        Whether the reaction is implicit, or extrapolated from earlier steps.
    stabilisation : float
        With ``"imex"``: the factor S of the term :math:`S (u_n - \tilde u_n)` added on the left, with the extrapolated
        state :math:`\tilde u_n`. Half the largest slope of the reaction makes explicit steps stable.
    """

    name: ClassVar[str] = "l1"
    order: ClassVar[str] = "2 - alpha on the graded mesh; 1 on a uniform one away from t0"
    parabola: ClassVar[bool] = False

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs orders up to 1."""
        for _, alpha in problem.orders:
            if order_value(alpha) > 1.0:
                return (
                    f"method='l1' takes orders up to 1, and alpha={order_value(alpha):g}; use 'convolution_quadrature'"
                )
        return None

    def exponent(self, problem: EvolutionProblem) -> float:
        """The grading at which the start has the same order as the rest."""
        alpha = leading_order(problem)
        return max(1.0, (2.0 - alpha) / alpha) if self.grading is None else self.grading

    def place(self, alpha: Any) -> float:
        """The equation is imposed at the end of the step."""
        return 1.0

    def convergence(self, problem: EvolutionProblem) -> float:
        """``min(2 - alpha, r alpha)``."""
        alpha = problem.alpha_value
        if math.isnan(alpha):
            return 1.0
        best = 2.0 - alpha if alpha < 1.0 else 1.0
        return min(best, max(self.exponent(problem) * leading_order(problem), 0.3))

    def reason(self, problem: EvolutionProblem) -> str:
        """Several derivatives."""
        return "the equation has several derivatives in time, whose order of convergence L1 keeps on a graded mesh"
