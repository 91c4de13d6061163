"""L1 on graded meshes, for subdiffusion."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.pde.difference import (
    advance_differences,
    check_choices,
    chosen_history,
    forecast_differences,
    graded_mesh,
)
from hpfracc.solvers.pde.history.weights import IntervalWeights
from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.problem import EvolutionProblem, order_value

__all__ = ["DiffusionL1"]

Array = np.ndarray[Any, Any]


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL1(EvolutionMethod):
    r"""L1: u linear on each step. Of order :math:`2 - \alpha` on its graded mesh, also for data that are not smooth.

    :math:`t_j = T (j/N)^r` with :math:`r = (2-\alpha)/\alpha` unless given. On a uniform mesh (``grading=1``) the
    largest error is of order :math:`\alpha`, and that at a fixed time of order 1. It damps stiff modes, unlike
    L2-1sigma. For orders up to 1 (backward Euler there), and for sums of derivatives.

    Parameters
    ----------
    grading : float, optional
        The exponent r.
    memory : {"auto", "direct", "exponentials"}
        How the past is summed.
    reaction : {"newton", "imex"}
        Whether the reaction is implicit, or extrapolated from the steps before.
    stabilisation : float
        With ``"imex"``: S of the term :math:`S (u_n - \tilde u_n)` that is added on the left, with the extrapolated
        state; half the largest slope of the reaction makes explicit steps stable.
    """

    grading: float | None = None
    memory: str = "auto"
    reaction: str = "newton"
    stabilisation: float = 0.0

    name: ClassVar[str] = "l1"
    order: ClassVar[str] = "2 - alpha on the graded mesh; 1 on a uniform one away from t0"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})

    def __post_init__(self) -> None:
        check_choices(self.name, self.memory, self.reaction, self.stabilisation, self.grading)

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs orders up to 1."""
        for _, alpha in problem.orders:
            if order_value(alpha) > 1.0:
                return (
                    f"method='l1' takes orders up to 1, and alpha={order_value(alpha):g}; use 'convolution_quadrature'"
                )
        return None

    def _exponent(self, problem: EvolutionProblem) -> float:
        if self.grading is not None:
            return self.grading
        alpha = _least_order(problem)
        return max(1.0, (2.0 - alpha) / alpha)

    def mesh(self, problem: EvolutionProblem, steps: int) -> Array:
        """Graded to the start."""
        return graded_mesh(problem.t0, problem.t1, steps, self._exponent(problem))

    def convergence(self, problem: EvolutionProblem) -> float:
        """``min(2 - alpha, r alpha)``."""
        alpha = problem.alpha_value
        if math.isnan(alpha):
            return 1.0
        best = 2.0 - alpha if alpha < 1.0 else 1.0
        return min(best, max(self._exponent(problem) * _least_order(problem), 0.3))

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """One linear (or nonlinear) equation a step."""
        return advance_differences(
            problem,
            mesh,
            sigma=1.0,
            parabola=False,
            memory=self.memory,
            reaction=self.reaction,
            stabilisation=self.stabilisation,
        )

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """Direct sums for few steps."""
        return chosen_history(self.memory, steps)

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The past, or the exponentials."""
        mesh = self.mesh(problem, steps) - problem.t0
        plain = tuple((1.0, _plain(alpha)) for _, alpha in problem.orders)
        return forecast_differences(problem, self.memory, steps, IntervalWeights(plain, mesh))

    def reason(self, problem: EvolutionProblem) -> str:
        """Several derivatives."""
        return "the equation has several derivatives in time, whose order of convergence L1 keeps on a graded mesh"


def _plain(alpha: Any) -> float:
    value = order_value(alpha)
    return 0.5 if math.isnan(value) else value


def _least_order(problem: EvolutionProblem) -> float:
    """The leading order decides how the solution starts; its smallest sensible value bounds the grading."""
    return max(0.1, _plain(problem.alpha))
