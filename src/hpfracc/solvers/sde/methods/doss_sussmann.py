r"""Doss and Sussmann's method: the flow of the noise, and between its steps the flow of the drift.

With one noise the solution is a function of the noise's value now and of an ordinary equation [1]: it exists for every
H. A step follows :math:`y' = f(t, y)` for half a step, :math:`dy/dz = g(t, y)` along the increment, and the drift
again. The flow of the noise is followed to 11 digits, by extrapolation of the midpoint rule [2]: rough increments are
large, and what a fixed rule loses in each adds up to infinity below H = 1/6. Where f and g commute nothing else is lost
but the fourth order of Runge-Kutta's method along the drift.

References
----------
1. H. Doss, "Liens entre equations differentielles stochastiques et ordinaires", Ann. Inst. H. Poincare 13, 1977;
   H. J. Sussmann, Ann. Probab. 6, 1978.
2. E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", Springer, 1993, II.9.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hpfracc.solvers.sde.problem import NoisyProblem

__all__ = ["advance", "refuses"]

#: Relative error of the flow along one increment, rows of the extrapolation, and how often an increment is halved.
_TOLERANCE = 1e-11
_MOST_ROWS, _MOST_HALVINGS = 8, 8


def refuses(problem: NoisyProblem) -> str | None:
    """Why it cannot take the equation, or None."""
    if math.isnan(problem.hurst):
        return "Doss and Sussmann's method follows continuous noise; with jumps use method='euler'"
    if not problem.scalar:
        return (
            "Doss and Sussmann's method takes one noise for each component, or one for all; use method='second_order'"
        )
    if problem.interpretation == "ito" and not problem.additive:
        return "Doss and Sussmann's method gives Stratonovich's solution; for Ito's use method='second_order'"
    return None


def advance(problem: NoisyProblem, t: float, y: np.ndarray, h: float, increments: np.ndarray) -> np.ndarray:
    """One step."""

    def drift(y: np.ndarray) -> np.ndarray:
        return 0.5 * h * np.asarray(problem.drift(t + 0.5 * h, y))

    def noise(y: np.ndarray) -> np.ndarray:
        return problem.apply(np.asarray(problem.diffusion(t + 0.5 * h, y)), increments)

    middle = _runge_kutta(drift, y)
    return _runge_kutta(drift, _flow(noise, middle, 0))


def _flow(change: Callable[[np.ndarray], np.ndarray], y: np.ndarray, depth: int) -> np.ndarray:
    """The flow for a time of 1, in halves where it is not found to 11 digits at once."""
    value, found = _extrapolated(change, y)
    if found or depth >= _MOST_HALVINGS or not np.all(np.isfinite(value)):
        return value

    def half(y: np.ndarray) -> np.ndarray:
        return 0.5 * change(y)

    return _flow(half, _flow(half, y, depth + 1), depth + 1)


def _extrapolated(change: Callable[[np.ndarray], np.ndarray], y: np.ndarray) -> tuple[np.ndarray, bool]:
    """The flow for a time of 1, by the midpoint rule in 2, 4, 6, ... parts, extrapolated; whether it has settled."""
    first = change(y)
    table: list[np.ndarray] = []
    for row, parts in enumerate(range(2, 2 * _MOST_ROWS + 1, 2)):
        before, now = y, y + first / parts
        for _ in range(parts - 1):
            before, now = now, before + 2.0 / parts * change(now)
        # Gragg's smoothing step keeps the expansion in squares.
        value = 0.5 * (before + now + change(now) / parts)
        line = [value]
        for k in range(1, row + 1):
            ratio = (parts / (parts - 2 * k)) ** 2
            line.append(line[-1] + (line[-1] - table[k - 1]) / (ratio - 1.0))
        if row and np.all(np.abs(line[-1] - line[-2]) <= _TOLERANCE * (np.abs(y) + np.abs(line[-1]))):
            return line[-1], True
        table = line
    return table[-1], False


def _runge_kutta(change: Callable[[np.ndarray], np.ndarray], y: np.ndarray) -> np.ndarray:
    """Runge-Kutta's step of length 1."""
    first = change(y)
    second = change(y + 0.5 * first)
    third = change(y + 0.5 * second)
    fourth = change(y + third)
    return np.asarray(y + (first + 2.0 * second + 2.0 * third + fourth) / 6.0)
