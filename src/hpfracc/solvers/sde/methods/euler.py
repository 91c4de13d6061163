r"""Euler's method, :math:`X_{n+1} = X_n + f h + g\,\Delta Z`, explicit or implicit in the drift.

Strong order with multiplicative noise: 1/2 for Brownian motion (Ito), :math:`2H - 1` for :math:`H > 1/2`; with additive
noise 1 for Brownian motion and :math:`\min(1, H + 1/2)` or better otherwise.

The implicit method, :math:`X_{n+1} = X_n + f(t_{n+1}, X_{n+1})\,h + g(t_n, X_n)\,\Delta Z`, is for stiff drifts. Its
strong orders are those of the explicit one [1], but a fast decaying drift does not require small steps. Each step is
solved by Newton's method, with the Jacobian of the drift by finite differences (automatic in JAX). Derivatives of the
solution pass through the last iterations, which give those of the implicit function.

References
----------
1. P. E. Kloeden, E. Platen, "Numerical Solution of Stochastic Differential Equations", Springer, 1992, 12.2.
"""

from __future__ import annotations

import math
from typing import Any, final

from hpfracc.errors import SolveError
from hpfracc.solvers.sde.loops import iterate
from hpfracc.solvers.sde.methods.method import Carry, PathMethod, Weights, columns
from hpfracc.solvers.sde.problem import NoisyProblem, Traits

#: Newton iterations: maximum; in JAX, where the number is fixed; and after convergence, for derivatives.
_MAX_ITERATIONS, _FIXED_ITERATIONS, _LAST_ITERATIONS = 50, 10, 2
#: Relative change of an iteration at which it has converged.
_TOLERANCES = {"float64": 1e-12, "float32": 2e-6}


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
    """The solution of ``y = known + scale * drift(t, y)``."""
    xp = problem.xp
    tolerance = _TOLERANCES[problem.traits.dtype]

    def drift(y: Any) -> Any:
        return problem.drift(t, y)

    def change(y: Any) -> Any:
        residual = y - known - scale * drift(y)
        if y.shape[-1] == 1:
            return residual / (1.0 - xp.stop_gradient(scale * columns(xp, drift, y)[0]))
        unit = xp.module.eye(y.shape[-1], dtype=y.dtype, **({"device": y.device} if xp.library == "torch" else {}))
        matrix = unit - xp.stop_gradient(scale * xp.stack(columns(xp, drift, y), -1))
        return xp.module.linalg.solve(matrix, residual[..., None])[..., 0]

    def settled(y: Any, step: Any) -> Any:
        """Whether each path has converged, relative to the terms of the step."""
        return (xp.abs(step) <= tolerance * (1.0 + xp.abs(y) + xp.abs(known))).all(-1) | ~xp.isfinite(y).all(-1)

    if xp.library == "jax":
        found = iterate(xp, _FIXED_ITERATIONS, lambda carry: (carry[0] - change(carry[0]),), (xp.stop_gradient(guess),))
        step = change(found[0])
        return xp.where(settled(found[0], step)[:, None], found[0] - step, math.nan)
    y = _iterate(xp, change, settled, guess, t)
    for _ in range(_LAST_ITERATIONS if xp.library == "torch" else 0):
        y = y - change(y)
    return y


def _iterate(xp: Any, change: Any, settled: Any, guess: Any, t: Any) -> Any:
    """Newton iterations without derivatives. A converged path no longer changes."""
    quiet = xp.module.no_grad() if xp.library == "torch" else xp.scope()
    with quiet:
        y = xp.stop_gradient(guess)
        done: Any = None
        for _ in range(_MAX_ITERATIONS):
            step = change(y)
            moved = y - step
            y = moved if done is None else xp.where(done[:, None], y, moved)
            now = settled(moved, step)
            done = now if done is None else done | now
            if bool(done.all()):
                return y
    raise SolveError(
        f"Newton's method did not converge at t={float(t):.6g} for {int((~done).sum()):,} of {done.shape[0]:,} paths; "
        "use a smaller step"
    )
