r"""Euler's method with the second term of Taylor's expansion in the noise.

.. math:: X_{n+1} = X_n + f h + g\,\Delta Z + \tfrac12 (g \cdot \nabla) g\,\Delta Z^2,

less :math:`h` in place of the square's mean for Ito's equation (Milstein's method). Strong order :math:`2H - 1/2` up to
:math:`H = 3/4`, then 1 [1]. The derivative of g along itself is a central difference.

References
----------
1. A. Deya, A. Neuenkirch, S. Tindel, "A Milstein-type scheme without Levy area terms for SDEs driven by fractional
   Brownian motion", Ann. Inst. H. Poincare Probab. Statist. 48, 2012.
"""

from __future__ import annotations

import math

import numpy as np

from hpfracc.solvers.sde.problem import NoisyProblem

__all__ = ["advance", "refuses"]

#: Relative step of a central difference: its error is some 1e-10.
_STEP = 6e-6


def refuses(problem: NoisyProblem) -> str | None:
    """Why it cannot take the equation, or None."""
    if problem.additive:
        return None
    if math.isnan(problem.hurst):
        return "the second term belongs to continuous noise; with jumps use method='euler'"
    if problem.hurst <= 0.25:
        return f"the second-order method converges for H > 1/4, not for H={problem.hurst}; use method='doss_sussmann'"
    if not problem.scalar and problem.hurst <= 1.0 / 3.0:
        return f"several noises that do not commute take H > 1/3 here, not H={problem.hurst}; use one noise"
    if not problem.scalar and problem.interpretation == "ito":
        return "several noises of Ito's equation take their Levy areas in this method; use method='euler'"
    return None


def advance(problem: NoisyProblem, t: float, y: np.ndarray, h: float, increments: np.ndarray) -> np.ndarray:
    """One step."""
    strength = np.asarray(problem.diffusion(t, y))
    moved = problem.apply(strength, increments)
    result = y + h * np.asarray(problem.drift(t, y)) + moved
    if problem.additive:
        return np.asarray(result)
    if problem.interpretation == "ito":  # each component has one noise
        single = increments if not problem.general else increments[:, :1]
        column = strength if not problem.general else strength[:, :, 0]
        change = _along(problem, t, y, column)
        if problem.general:
            change = change[:, :, 0]
        return np.asarray(result + 0.5 * change * (single**2 - h))
    # 1/2 D(g dZ) (g dZ): the derivative of the diffusion along the move itself.
    return np.asarray(result + 0.5 * problem.apply(_along(problem, t, y, moved), increments))


def _along(problem: NoisyProblem, t: float, y: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The derivative of the diffusion along a direction."""
    size = np.max(np.abs(direction), axis=-1, keepdims=True)
    scale = np.maximum(np.max(np.abs(y), axis=-1, keepdims=True), 1e-3)
    length = np.where(size > 0, _STEP * scale / np.where(size > 0, size, 1.0), 0.0)
    ahead = np.asarray(problem.diffusion(t, y + length * direction))
    behind = np.asarray(problem.diffusion(t, y - length * direction))
    shape = length if not problem.general else length[:, :, None]
    difference = np.divide(ahead - behind, 2.0 * shape, out=np.zeros_like(ahead), where=shape > 0)
    return np.asarray(difference)
