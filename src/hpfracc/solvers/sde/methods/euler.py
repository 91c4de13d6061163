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
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights, columns, derivative_along
from hpfracc.solvers.sde.problem import NoisyProblem, Traits
from hpfracc.solvers.tensors.newton import slopes_of, solve_step


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
    wrapped = torch is not None and is_inside()
    y = solve_step(drift, jacobian, known, weight, guess, wrapped, wrapped)
    if torch is not None and torch.is_grad_enabled() and not wrapped:
        # Derivatives pass through two further steps: the first is exact after one of them, the second after two.
        slopes = slopes_of(drift, None, False)(y)
        matrix = (torch.eye(y.shape[-1], dtype=y.dtype, device=y.device) - weight[..., None] * slopes).detach()
        for _ in range(2):
            residual = y - known - weight * drift(y)
            y = y - torch.linalg.solve(matrix, residual[..., None])[..., 0]
    if xp.library == "jax" or is_transformed(y):
        return y
    lost = (~xp.isfinite(y) & xp.isfinite(known)).any(-1)
    if bool(lost.any()):
        raise SolveError(
            f"Newton's method did not converge at t={float(t):.6g} for {int(lost.sum()):,} of {lost.shape[0]:,} paths; "
            "use a smaller step"
        )
    return y


_COUPLED = " (or one for each component, whose strength depends on other components)"


@final
class SecondOrder(PathMethod):
    r"""Euler's method with the second term of the Taylor expansion in the noise.

    .. math:: X_{n+1} = X_n + f h + g\,\Delta Z + \tfrac12 (g \cdot \nabla) g\,\Delta Z^2,

    with :math:`\Delta Z^2 - h` in place of the square for Ito equations (Milstein's method). Strong order
    :math:`2H - 1/2` up to :math:`H = 3/4`, then 1 [1]. The derivative of g along itself is a central difference, or
    automatic in JAX.

    References
    ----------
    1. A. Deya, A. Neuenkirch, S. Tindel, "A Milstein-type scheme without Levy area terms for SDEs driven by fractional
       Brownian motion", Ann. Inst. H. Poincare Probab. Statist. 48, 2012.
    """

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
