r"""Euler's method with the second term of the Taylor expansion in the noise.

.. math:: X_{n+1} = X_n + f h + g\,\Delta Z + \tfrac12 (g \cdot \nabla) g\,\Delta Z^2,

with :math:`\Delta Z^2 - h` in place of the square for Ito equations (Milstein's method). Strong order :math:`2H - 1/2`
up to :math:`H = 3/4`, then 1 [1]. The derivative of g along itself is a central difference, or automatic in JAX.

References
----------
1. A. Deya, A. Neuenkirch, S. Tindel, "A Milstein-type scheme without Levy area terms for SDEs driven by fractional
   Brownian motion", Ann. Inst. H. Poincare Probab. Statist. 48, 2012.
"""

from __future__ import annotations

from typing import Any, final

from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights, derivative_along
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

_COUPLED = " (or one for each component, whose strength depends on other components)"


@final
class SecondOrder(PathMethod):
    """Milstein's method for Ito equations."""

    name = "second_order"
    order = "1 for Brownian motion; 2H - 1/2 for H > 1/4, at most 1"

    def refuses(self, traits: Traits) -> str | None:
        """Does not support very rough noise, nor several noises of an Ito equation."""
        if traits.additive:
            return None
        if traits.jumps:
            return "the second-order method needs continuous noise; with jumps use method='euler'"
        if traits.roughness_up_to(0.25):
            return (
                f"the second-order method converges for H > 1/4, not for H={traits.hurst}; use method='doss_sussmann'"
            )
        if not traits.scalar and traits.roughness_up_to(1.0 / 3.0):
            return f"noises that do not commute{_COUPLED} need H > 1/3 here, not H={traits.hurst}; use one noise"
        if not traits.scalar and traits.interpretation == "ito":
            return f"several noises of an Ito equation{_COUPLED} need Levy areas in this method; use method='euler'"
        return None

    def lowest_hurst(self, traits: Traits) -> float:
        """1/4, and 1/3 for noises that may not commute."""
        if traits.additive:
            return 0.0
        return 0.25 if traits.scalar else 1.0 / 3.0

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        (y,) = carry
        traits = problem.traits
        strength = problem.diffusion(t, y)
        moved = problem.apply(strength, dz)
        result = y + h * problem.drift(t, y) + moved
        if traits.additive:
            return (result,)

        def diffusion(y: Any) -> Any:
            return problem.diffusion(t, y)

        if traits.interpretation == "ito":  # each component has one noise
            single = dz[:, :1] if traits.general else dz
            column = strength[:, :, 0] if traits.general else strength
            change = derivative_along(problem.xp, diffusion, y, column)
            if traits.general:
                change = change[:, :, 0]
            return (result + 0.5 * change * (single**2 - h),)
        # 1/2 D(g dZ) (g dZ): the derivative of the diffusion along the increment.
        change = derivative_along(problem.xp, diffusion, y, moved)
        return (result + 0.5 * problem.apply(change, dz),)
