r"""Euler's method, :math:`X_{n+1} = X_n + f h + g\,\Delta Z`, explicit or implicit in the drift.

Strong order with multiplicative noise: 1/2 for Brownian motion (Ito), :math:`2H - 1` for :math:`H > 1/2`; with additive
noise 1 for Brownian motion and :math:`\min(1, H + 1/2)` or better otherwise.

The implicit method, :math:`X_{n+1} = X_n + f(t_{n+1}, X_{n+1})\,h + g(t_n, X_n)\,\Delta Z`, is for stiff drifts. Its
strong orders are those of the explicit one [1], but a fast decaying drift does not require small steps. Each step is
solved by Newton's method, with the Jacobian of the drift by automatic differentiation (finite differences in NumPy).
Derivatives of the solution are those of the implicit function.

References
----------
1. P. E. Kloeden, E. Platen, "Numerical Solution of Stochastic Differential Equations", Springer, 1992, 12.2.
"""

from __future__ import annotations

from functools import partial
from typing import Any, final

import numpy as np

from hpfracc._arrays import is_transformed
from hpfracc._torch_transforms import is_inside
from hpfracc.errors import SolveError
from hpfracc.solvers.ode.tensors.newton import solve_step
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights, columns
from hpfracc.solvers.sde.problem import NoisyProblem, Traits


@final
class Euler(PathMethod):
    """Explicit in the noise; explicit or implicit in the drift."""

    name = "euler"
    order = "1/2 for Ito's equation and 2H - 1 for H > 1/2; additive noise 1, or H + 1/2 below H = 1/2"

    def refuses(self, traits: Traits) -> str | None:
        """Does not support rough multiplicative noise, nor Stratonovich equations."""
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

    def lowest_hurst(self, traits: Traits) -> float:
        """1/2 with multiplicative noise."""
        return 0.0 if traits.additive else 0.5

    def advance(self, problem: NoisyProblem, weights: Weights, t: Any, h: Any, carry: Carry, dz: Any) -> Carry:
        """One step."""
        (y,) = carry
        moved = problem.apply(problem.diffusion(t, y), dz)
        if self.implicit:
            return (solve_implicit_step(problem, t + h, h, y + moved, y),)
        return (y + h * problem.drift(t, y) + moved,)


def solve_implicit_step(problem: NoisyProblem, t: Any, scale: Any, known: Any, guess: Any) -> Any:
    """The solution of ``y = known + scale * drift(t, y)``; in JAX nan for paths without one."""
    xp, drift = problem.xp, partial(problem.drift, t)
    weight = xp.zeros_like(guess[:, :1]) + scale
    torch = xp.module if xp.library == "torch" else None
    jacobian = None if xp.library != "numpy" else lambda y: np.stack(columns(xp, drift, y), -1)
    tracked, wrapped = torch is not None and torch.is_grad_enabled(), torch is not None and is_inside()
    y = solve_step(drift, jacobian, known, weight, guess, tracked, wrapped)
    if xp.library == "jax" or is_transformed(y):
        return y
    lost = (~xp.isfinite(y) & xp.isfinite(known)).any(-1)
    if bool(lost.any()):
        raise SolveError(
            f"Newton's method did not converge at t={float(t):.6g} for {int(lost.sum()):,} of {lost.shape[0]:,} paths; "
            "use a smaller step"
        )
    return y
