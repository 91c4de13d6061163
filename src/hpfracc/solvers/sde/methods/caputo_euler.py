r"""The Euler-Maruyama method for the Caputo equation, with fast memory.

.. math:: D^\alpha X = f(t, X) + g(t, X)\,\dot W, \qquad X_t = X_0 + \frac{1}{\Gamma(\alpha)} \int_0^t (t-s)^{\alpha-1}
    \left(f\,ds + g\,dW_s\right), \qquad \tfrac12 < \alpha < 1,

in the Ito sense. On older steps the kernel is replaced by its mean, a sum of exponentials with 8 digits, so the cost of
a step does not depend on the length of the history. On the newest step the integral of the noise is drawn exactly,
jointly with the increment. Strong order :math:`\alpha - 1/2` [1].

References
----------
1. M. Li, C. Huang, Y. Hu, "Numerical methods for stochastic Volterra integral equations with weakly singular
   kernels", IMA J. Numer. Anal. 42, 2022.
"""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc.solvers.sde.methods.exponentials import decayed, kernel_weights, past
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

__all__ = ["CaputoEuler", "CaputoMethod"]


class CaputoMethod(PathMethod):
    """Common part of methods for the Caputo equation: the history, and the noise integral over the newest step."""

    remembers = True

    def refuses(self, traits: Traits) -> str | None:
        """Supports the Ito integral only."""
        if traits.interpretation not in (None, "ito"):
            return "equations of order below 1 are in the Ito sense; give interpretation='ito'"
        return None

    def sets(self, traits: Traits) -> int:
        """The increments, and the independent part of the integrals over the newest step."""
        return 2

    def weights(self, traits: Traits, alpha: Any, steps: int, h: float, hurst: Any = None) -> Weights:
        """Weights of the exponentials."""
        return kernel_weights(alpha, steps, h)

    def increments(self, problem: NoisyProblem, weights: Weights, h: float, dz: Any) -> Any:
        """The increments, and the integrals against the kernel over their own step."""
        _, _, _, cross, spread = weights
        noises = problem.traits.noises
        dw, other = dz[..., :noises], dz[..., noises:]
        newest = cross * dw + spread * (other / math.sqrt(h))
        return problem.xp.concatenate([dw, newest], -1)

    def begin(self, problem: NoisyProblem, weights: Weights, y: Any) -> Carry:
        """The state, its first value, and an empty history."""
        rates = weights[0].shape[0]
        return y, y, problem.xp.zeros((rates, *y.shape), problem.traits.dtype, like=y)


@final
class CaputoEuler(CaputoMethod):
    """Explicit in drift and noise."""

    name = "euler"
    order = "alpha - 1/2"

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        y, first, states = carry
        decay, kernel, newest_drift, _, _ = weights
        noises, xp = problem.traits.noises, problem.xp
        slope, strength = problem.drift(t, y), problem.diffusion(t, y)
        moved = problem.apply(strength, dz[..., noises:])
        y = first + past(xp, kernel, states) + newest_drift * slope + moved
        states = decayed(xp, decay, states, h * slope + problem.apply(strength, dz[..., :noises]))
        return y, first, states
