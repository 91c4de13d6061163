"""L2-1sigma on graded meshes, for subdiffusion."""

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

__all__ = ["DiffusionL2Sigma"]

Array = np.ndarray[Any, Any]


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class DiffusionL2Sigma(EvolutionMethod):
    r"""L2-1sigma (Alikhanov): the equation at :math:`t_{n-1} + (1-\alpha/2)\tau_n`. Of order 2 on its graded mesh.

    :math:`t_j = T (j/N)^r` with :math:`r = 2/\alpha` unless given; of order :math:`\min(2, r\alpha)` in general. It
    damps stiff modes only by :math:`\alpha/(2-\alpha)` a step: for data that are compatible with the boundary; L1
    otherwise.

    Parameters
    ----------
    grading, memory, reaction, stabilisation
        As for :class:`DiffusionL1`.
    """

    grading: float | None = None
    memory: str = "auto"
    reaction: str = "newton"
    stabilisation: float = 0.0

    name: ClassVar[str] = "l2_1sigma"
    order: ClassVar[str] = "2 on the graded mesh, min(2, r alpha) with grading r"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy", "torch", "jax"})

    def __post_init__(self) -> None:
        check_choices(self.name, self.memory, self.reaction, self.stabilisation, self.grading)

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs one order below 1."""
        if len(problem.orders) > 1:
            return "method='l2_1sigma' takes one derivative in time; use 'l1' or 'convolution_quadrature' for several"
        if problem.alpha_value >= 1.0:
            return f"method='l2_1sigma' takes orders below 1, and alpha={problem.alpha_value:g}"
        return None

    def _exponent(self, problem: EvolutionProblem) -> float:
        return 2.0 / _leading(problem) if self.grading is None else self.grading

    def mesh(self, problem: EvolutionProblem, steps: int) -> Array:
        """Graded to the start."""
        return graded_mesh(problem.t0, problem.t1, steps, self._exponent(problem))

    def convergence(self, problem: EvolutionProblem) -> float:
        """``min(2, r alpha)``."""
        return min(2.0, max(0.3, self._exponent(problem) * _leading(problem)))

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """One linear (or nonlinear) equation a step."""
        return advance_differences(
            problem,
            mesh,
            sigma=1.0 - 0.5 * problem.alpha,
            parabola=True,
            memory=self.memory,
            reaction=self.reaction,
            stabilisation=self.stabilisation,
        )

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """Direct sums for few steps."""
        return chosen_history(self.memory, steps)

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The past, or the exponentials."""
        alpha = _leading(problem)
        mesh = self.mesh(problem, steps) - problem.t0
        weights = IntervalWeights(((1.0, alpha),), mesh, 1.0 - 0.5 * alpha, parabola=True)
        return forecast_differences(problem, self.memory, steps, weights)

    def reason(self, problem: EvolutionProblem) -> str:
        """Order 2."""
        return "it has order 2 on a graded mesh for subdiffusion with data that fit the boundary"


def _leading(problem: EvolutionProblem) -> float:
    alpha = problem.alpha_value
    return 0.5 if math.isnan(alpha) else max(0.1, order_value(alpha))
