"""BDF2 with an extrapolated, stabilised reaction, for equations of order 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc import _reading
from hpfracc.solvers.pde.method import (
    EvolutionMethod,
    ExplicitPart,
    needs_order_one,
    register_evolution_method,
    time_steps,
)
from hpfracc.solvers.pde.nonlinear import own_slopes
from hpfracc.solvers.pde.problem import EvolutionProblem, Feature
from hpfracc.solvers.stepping.system import StepFailedError

Array = np.ndarray[Any, Any]

#: Steps between updates of the reaction's slope.
_LOOK = 10
#: Factor by which the slope may grow, and exceed 1/h, before the stabilisation would hide a blow-up.
_RUNAWAY = 1e3


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class ImexBDF2(EvolutionMethod):
    r"""Implicit linear part and extrapolated reaction, with a stabilising term of second order.

    .. math:: \frac{3u_{n+1} - 4u_n + u_{n-1}}{2h} = A u_{n+1} + b_{n+1} + 2R_n - R_{n-1}
        - S h\,(u_{n+1} - u_n)

    Of order 2, also on meshes with unequal steps. One linear system per step; rough data are damped. With S at least
    half the square of the reaction's largest slope, the energy of the Allen-Cahn equation does not grow for any step.
    The first step is an Euler step.

    Parameters
    ----------
    stabilisation : float or "auto"
        S. ``"auto"`` takes the square of the largest slope of the reaction so far, found by finite differences at every
        tenth step, and 0 without a reaction.

    References
    ----------
    C. Xu, T. Tang, "Stability analysis of large time-stepping methods for epitaxial growth models", SIAM J. Numer.
    Anal. 44, 2006.
    """

    stabilisation: float | str = "auto"

    name: ClassVar[str] = "imex_bdf2"
    order: ClassVar[str] = "2"
    takes: ClassVar[frozenset[Feature]] = frozenset({Feature.DELAYS})

    def __post_init__(self) -> None:
        if isinstance(self.stabilisation, str):
            _reading.choice("imex_bdf2: stabilisation", self.stabilisation, ("auto",))
        else:
            _reading.number("imex_bdf2: stabilisation", self.stabilisation, least=0.0)

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Order 1."""
        return needs_order_one(self.name, problem)

    def forecast(self, problem: EvolutionProblem, steps: int) -> int:
        """Six states and a linear system."""
        return 6 * problem.itemsize * math.prod(problem.state_shape) + problem.space.step_bytes()

    def reason(self, problem: EvolutionProblem) -> str:
        """For operators that are not diagonalised."""
        return "at alpha = 1 with an operator that is not diagonalised one linear system a step is enough"

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Keeps two states and two reactions from step to step."""
        space, u, explicit = problem.space, problem.u0, ExplicitPart(problem)
        older: Any = None
        older_rest: Any = None
        last = math.nan
        s = 0.0 if isinstance(self.stabilisation, str) else self.stabilisation
        first_slope = math.nan
        for number, (t, h) in enumerate(time_steps(mesh)):
            if self.stabilisation == "auto" and problem.reaction is not None and number % _LOOK == 0:
                scale = h * problem.largest(explicit(t, u))  # of the solution after a step from 0
                slope = max(map(problem.largest, own_slopes(problem, t, u, scale)))
                slope = slope if math.isfinite(slope) else 0.0
                first_slope = slope if number == 0 else first_slope
                if slope * h > _RUNAWAY and slope > _RUNAWAY * first_slope > 0.0:
                    raise StepFailedError(
                        f"the slope of the reaction grew from {first_slope:.3g} to {slope:.3g}, which steps of {h:.3g} "
                        "do not resolve: take a smaller step, or check whether the solution blows up"
                    )
                square = slope * slope
                if not math.isfinite(square):
                    raise StepFailedError(
                        f"the slope of the reaction is {slope:.3g}, which no step resolves: check its units"
                    )
                s = s if square <= 1.2 * s else square
            rest = 0.0 if problem.reaction is None else problem.reaction(t, u)
            if older is None:
                shift, guess = 1.0 / h + s * h, u
                rhs = shift * u + rest
            else:
                w = h / last
                shift = (1.0 + 2.0 * w) / (1.0 + w) / h + s * h
                guess = (1.0 + w) * u - w * older
                rhs = ((1.0 + w) / h + s * h) * u - w * w / (1.0 + w) / h * older + (1.0 + w) * rest - w * older_rest
            given = problem.known(t + h)
            if given is not None:
                rhs = rhs + given
            problem.stats["solves"] += 1
            older, older_rest, last = u, rest, h
            u = space.solve(shift, rhs, guess)
            yield u
