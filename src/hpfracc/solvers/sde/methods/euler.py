r"""Euler's method, :math:`X_{n+1} = X_n + f h + g\,\Delta Z`.

Strong order with multiplicative noise: 1/2 for Brownian motion (Ito), :math:`2H - 1` for :math:`H > 1/2`; with additive
noise 1 for Brownian motion and :math:`\min(1, H + 1/2)` or better otherwise.
"""

from __future__ import annotations

from typing import Any, final

from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["Euler", "refuse_as_euler"]


@final
class Euler(PathMethod):
    """Explicit in drift and noise."""

    name = "euler"
    order = "1/2 for Ito's equation and 2H - 1 for H > 1/2; additive noise 1, or H + 1/2 below H = 1/2"

    def refuses(self, traits: Traits) -> str | None:
        """Does not support rough multiplicative noise, nor Stratonovich equations."""
        return refuse_as_euler(traits)

    def lowest_hurst(self, traits: Traits) -> float:
        """1/2 with multiplicative noise."""
        return 0.0 if traits.additive else 0.5

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        (y,) = carry
        return (y + h * problem.drift(t, y) + problem.apply(problem.diffusion(t, y), dz),)


def refuse_as_euler(traits: Traits) -> str | None:
    """Reason why a method without a second term in the noise does not support an equation, or None."""
    if traits.additive:
        return None
    if traits.hurst is not None and traits.hurst < 0.5:
        return (
            f"Euler's method with multiplicative noise does not converge for H={traits.hurst}: the squares of the "
            "increments, which it neglects, add up to infinity; use method='second_order' or 'doss_sussmann'"
        )
    if traits.interpretation == "stratonovich" and traits.hurst == 0.5:
        return "Euler's method converges to the Ito solution; for Stratonovich use method='second_order'"
    return None
