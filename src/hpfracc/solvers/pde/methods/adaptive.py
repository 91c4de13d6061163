"""Adaptive steps, for orders up to 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc.solvers.pde.method import EvolutionMethod, register_evolution_method
from hpfracc.solvers.pde.methods.convolution_quadrature import CorrectedQuadrature
from hpfracc.solvers.pde.methods.differences import DiffusionL1, DiffusionL2Sigma
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature

Array = np.ndarray[Any, Any]

#: Decay rates of the exponentials of a typical run, for forecasts of memory.
_EXPONENTIALS = 80


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class AdaptiveSteps(EvolutionMethod):
    r"""Steps that follow the solution: their local error controls them, and they may grow and shrink by any factor.

    The equation as an integral equation, :math:`u = u_0 + I^\alpha f`: the right-hand side is a polynomial of degree 1
    (up to 3 for low orders) on each step, implicitly, and the past is a sum of exponentials. The global error is
    estimated along, and the solve repeated with shorter steps if it exceeds the tolerance. Steps end where source,
    boundary data or reaction jump, if that is known (``breakpoints``) or seen, and start anew behind. For one order in
    (0, 2]; above order 1 steps are limited by the largest eigenvalue.
    """

    name: ClassVar[str] = "adaptive"
    order: ClassVar[str] = "the error is controlled; 1 + alpha in the step"
    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    meets_breaks: ClassVar[bool] = True
    chooses_steps: ClassVar[bool] = True
    takes: ClassVar[frozenset[Feature]] = frozenset({Feature.SEVERAL})

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Needs one order, and above 1 a discretisation with known eigenvalues."""
        if len(problem.orders) > 1:
            return "method='adaptive' takes one derivative in time; use 'l1' or 'convolution_quadrature' for several"
        if problem.alpha_value > 1.0 and problem.space.symbol is None:
            return (
                "method='adaptive' needs the eigenvalues of the discretisation above order 1, and "
                f"alpha={problem.alpha_value:g}; use 'convolution_quadrature'"
            )
        return None

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """The steps of the method that stands in on a given mesh."""
        return self.stand_in(problem).advance(problem, mesh)

    def stand_in(self, problem: EvolutionProblem) -> EvolutionMethod:
        """The method for a given mesh, with which solutions on several grids are compared."""
        if problem.varying is not None:
            return DiffusionL1()
        if problem.alpha_value >= 1.0:
            return CorrectedQuadrature(2)
        return DiffusionL2Sigma() if problem.compatible else DiffusionL1()

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """The states of the exponentials, for the solution and its error, before and after a step."""
        return (3 * _EXPONENTIALS + 32) * problem.itemsize * math.prod(problem.state_shape)

    def history(self, problem: EvolutionProblem, steps: int) -> str:
        """A sum of exponentials."""
        return "exponentials"

    def convergence(self, problem: EvolutionProblem) -> float:
        """``1 + alpha``."""
        return 1.0 + min(1.0, problem.alpha_value)

    def reason(self, problem: EvolutionProblem) -> str:
        """Follows the solution."""
        return "its steps follow the solution to the tolerance, also behind jumps of the data"
