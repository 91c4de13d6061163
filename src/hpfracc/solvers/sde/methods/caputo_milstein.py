r"""Milstein's method for the Caputo equation, with fast memory.

Within a step the diffusion is expanded to first order along the path,

.. math:: g(X_s) \approx g(X_{t_n}) + g'(X_{t_n})\,(X_s - X_{t_n}), \qquad t_n \le s < t_{n+1},

instead of being constant. Its integrals against the kernel are iterated integrals of the noise and of the history,
which have no closed form below order 1; they are sums over substeps, as many per step as there are steps. The strong
order is :math:`2\alpha - 1` [1], twice that of Euler. Drift, diffusion and its derivative are evaluated once per step:
the accuracy is that of Euler's method with the square of the step, with a similar number of random numbers and far
fewer evaluations. Noises need not commute.

References
----------
1. M. Li, C. Huang, Y. Hu, "Numerical methods for stochastic Volterra integral equations with weakly singular
   kernels", IMA J. Numer. Anal. 42, 2022; A. Richard, X. Tan, F. Yang, "Discrete-time simulation of stochastic
   Volterra equations", Stochastic Process. Appl. 141, 2021.
"""

from __future__ import annotations

from typing import Any, final

from hpfracc.solvers.sde.loops import scan
from hpfracc.solvers.sde.methods.caputo_euler import CaputoMethod, decayed, kernel_weights, past
from hpfracc.solvers.sde.methods.method import Carry, Weights, columns, derivative_along
from hpfracc.solvers.sde.problem import NoisyProblem, Traits


@final
class CaputoMilstein(CaputoMethod):
    """Explicit, with the derivative of the diffusion."""

    name = "milstein"
    order = "2 alpha - 1"

    def parts(self, traits: Traits, steps: int) -> int:
        """Substeps: as many as there are steps, or one if the diffusion is constant."""
        return 1 if traits.additive else steps

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Weights of the substeps."""
        parts = self.parts(traits, steps)
        return kernel_weights(alpha, steps * parts, h / parts)

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """Shape ``(steps, parts, paths, 2 m)``."""
        total = dz.shape[0]
        steps = total if problem.traits.additive else round(total**0.5)
        parts = total // steps
        return super().increments(problem, weights, h / parts, dz).reshape(steps, parts, *dz.shape[1:])

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step, over its substeps."""
        y, first, states = carry
        decay, kernel, newest_drift, _, _ = weights
        noises, xp = problem.traits.noises, problem.xp
        slope, held = problem.drift(t, y), problem.diffusion(t, y)
        follow = _linear(problem, t, y)
        part_of_drift = h / dz.shape[0] * slope

        def part(carry: Carry, row: tuple[Any, ...]) -> Carry:
            x, states = carry
            strength = held if follow is None else held + follow(x - y)
            moved = problem.apply(strength, row[0][..., noises:])
            x = first + past(xp, kernel, states) + newest_drift * slope + moved
            return x, decayed(xp, decay, states, part_of_drift + problem.apply(strength, row[0][..., :noises]))

        (moved, states), _ = scan(xp, part, (y, states), (dz,), keep=False)
        return moved, first, states


def _linear(problem: NoisyProblem, t: Any, y: Any) -> Any:
    """The change of the diffusion with that of the state, to first order; None if it is constant."""
    traits, xp = problem.traits, problem.xp
    if traits.additive:
        return None

    def diffusion(y: Any) -> Any:
        return problem.diffusion(t, y)

    if not (traits.general or traits.coupled):
        slope = derivative_along(xp, diffusion, y, xp.ones_like(y))
        return lambda change: slope * change
    slopes = columns(xp, diffusion, y)
    each = (..., None) if traits.general else ()

    def follow(change: Any) -> Any:
        return sum(slope * change[:, index : index + 1][each] for index, slope in enumerate(slopes))

    return follow
