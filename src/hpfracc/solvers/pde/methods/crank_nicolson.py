"""The Crank-Nicolson method, for equations of order 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc import _reading
from hpfracc.solvers.pde.method import EvolutionMethod, needs_order_one, register_evolution_method, time_steps
from hpfracc.solvers.pde.problem import EvolutionProblem

Array = np.ndarray[Any, Any]


@final
@register_evolution_method
@dataclass(frozen=True, slots=True)
class CrankNicolson(EvolutionMethod):
    r"""The trapezoidal rule for the linear part; source and extrapolated reaction at the midpoint.

    .. math:: \frac{u_{n+1} - u_n}{h} = A\,\frac{u_{n+1} + u_n}{2} + \frac{b_{n+1} + b_n}{2} + f(t_{n+1/2})
        + \tfrac{3}{2} R_n - \tfrac{1}{2} R_{n-1}

    Of order 2. It does not damp stiff modes: rough data leave oscillations, unless the first steps are replaced by
    twice as many half steps of Euler's method (Rannacher 1984). It conserves the norm if A is skew, as in Schrödinger
    equations.

    Parameters
    ----------
    smoothing : int
        Number of steps to replace: 2 for rough data, 0 for smooth.

    References
    ----------
    C. Tadjeran, M. M. Meerschaert, H.-P. Scheffler, "A second-order accurate numerical approximation for the fractional
    diffusion equation", J. Comput. Phys. 213, 2006.
    """

    smoothing: int = 0

    name: ClassVar[str] = "crank_nicolson"
    order: ClassVar[str] = "2 for smooth data, or with smoothing"

    def __post_init__(self) -> None:
        _reading.whole("crank_nicolson: smoothing", self.smoothing, least=0)

    def refuses(self, problem: EvolutionProblem) -> str | None:
        """Order 1."""
        return needs_order_one(self.name, problem)

    def advance(self, problem: EvolutionProblem, mesh: Array) -> Iterator[Any]:
        """Solve one linear system per step."""
        u = problem.u0
        older: Any = None
        last = math.nan
        for number, (t, h) in enumerate(time_steps(mesh)):
            rest = self._reaction(problem, t, u)
            if number < self.smoothing:
                u = self._euler(problem, t, 0.5 * h, u, rest)
                u = self._euler(problem, t + 0.5 * h, 0.5 * h, u, self._reaction(problem, t + 0.5 * h, u))
            else:
                if older is not None:
                    w = 0.5 * h / last
                    middle = (1.0 + w) * rest - w * older
                else:  # The first step cannot extrapolate: Heun's method, with a predicted end.
                    middle = rest
                    if problem.reaction is not None:
                        middle = 0.5 * (rest + problem.reaction(t + h, self._step(problem, t, h, u, rest)))
                u = self._step(problem, t, h, u, middle)
            older, last = rest, h
            yield u

    def _reaction(self, problem: EvolutionProblem, t: float, u: Any) -> Any:
        return 0.0 if problem.reaction is None else problem.reaction(t, u)

    def _step(self, problem: EvolutionProblem, t: float, h: float, u: Any, rest: Any) -> Any:
        """Solve ``(2/h - A) u_new = (2/h + A) u + 2 (...)``."""
        space = problem.space
        rhs = 2.0 / h * u + space.apply(u) + 2.0 * rest
        if problem.space.forced:
            rhs = rhs + space.forcing(t) + space.forcing(t + h)
        if problem.source is not None:
            rhs = rhs + 2.0 * problem.source(t + 0.5 * h)
        problem.stats["solves"] += 1
        return space.solve(2.0 / h, rhs, u)

    def _euler(self, problem: EvolutionProblem, t: float, h: float, u: Any, rest: Any) -> Any:
        rhs = u / h + rest
        given = problem.known(t + h)
        if given is not None:
            rhs = rhs + given
        problem.stats["solves"] += 1
        return problem.space.solve(1.0 / h, rhs, u)
