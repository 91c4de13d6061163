r"""Euler's method, :math:`X_{n+1} = X_n + f h + g\,\Delta Z`.

Strong order with multiplicative noise: 1/2 for Brownian motion (Ito), :math:`2H - 1` for :math:`H > 1/2`; with additive
noise 1 for Brownian motion and :math:`\min(1, H + 1/2)` or better otherwise.
"""

from __future__ import annotations

import numpy as np

from hpfracc.solvers.sde.problem import NoisyProblem

__all__ = ["advance", "refuses"]


def refuses(problem: NoisyProblem) -> str | None:
    """Why it cannot take the equation, or None."""
    if problem.additive:
        return None
    if problem.hurst < 0.5:
        return (
            f"Euler's method with multiplicative noise does not converge for H={problem.hurst}: the squares of the "
            "increments, which it leaves out, add up to infinity; use method='second_order' or 'doss_sussmann'"
        )
    if problem.interpretation == "stratonovich" and problem.hurst == 0.5:
        return "Euler's method converges to Ito's solution; for Stratonovich's use method='second_order'"
    return None


def advance(problem: NoisyProblem, t: float, y: np.ndarray, h: float, increments: np.ndarray) -> np.ndarray:
    """One step."""
    moved = problem.apply(np.asarray(problem.diffusion(t, y)), increments)
    return np.asarray(y + h * np.asarray(problem.drift(t, y)) + moved)
