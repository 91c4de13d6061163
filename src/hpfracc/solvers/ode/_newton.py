"""Newton's method for the equation of an implicit step, all members of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpfracc.solvers.ode._evaluation import Jacobian

__all__ = ["MOST_ITERATIONS", "REFRESH", "TOLERANCE", "Newton", "difference_jacobian"]

Array = np.ndarray[Any, Any]

#: The residual, relative to the terms it is made of, at which a step is solved.
TOLERANCE = 2e-13
#: Iterations after which a step is given up.
MOST_ITERATIONS = 20
#: The Jacobian is taken anew at each step and after every so many iterations.
REFRESH = 3


class Newton:
    """Solves ``y = past + weight f(t, y)``.

    Parameters
    ----------
    evaluate : callable
        ``f(t, y)``, for y of shape (..., d).
    jacobian : Jacobian or None
        ``df/dy`` of shape (..., d, d); by differences where there is none.
    """

    def __init__(self, evaluate: Callable[[float, Array], Array], jacobian: Jacobian | None) -> None:
        self.evaluate = evaluate
        self.jacobian = jacobian
        self.iterations = 0
        self.jacobians = 0
        self.residual = 0.0

    def solve(self, t: float, past: Array, weight: Array, guess: Array) -> tuple[Array, Array] | None:
        """The solution and ``f`` there, or None where the iteration does not settle."""
        y = np.where(np.isfinite(guess), guess, past)  # a Riemann-Liouville solution may begin at infinity
        matrix: Array | None = None
        for turn in range(MOST_ITERATIONS):
            value = self.evaluate(t, y)
            residual = y - past - weight * value
            size = np.abs(residual).max(axis=-1)
            bound = TOLERANCE * (np.abs(y).max(axis=-1) + np.abs(past).max(axis=-1))
            if np.all(size <= bound):
                return y, value
            self.residual = float(np.max(size))
            if not np.isfinite(self.residual):
                return None
            if matrix is None or turn % REFRESH == 0:
                matrix = self._matrix(t, y, value, weight)
            try:
                change = np.linalg.solve(matrix, residual[..., None])[..., 0]
            except np.linalg.LinAlgError:
                return None
            self.iterations += 1
            y = y - change
            # Nothing left to gain: the change is lost in rounding.
            if np.all(np.abs(change).max(axis=-1) <= 4e-16 * np.abs(y).max(axis=-1)):
                return y, self.evaluate(t, y)
        return None

    def _matrix(self, t: float, y: Array, value: Array, weight: Array) -> Array:
        self.jacobians += 1
        given = self.jacobian
        derivative = difference_jacobian(self.evaluate, t, y, value) if given is None else given(t, y)
        return np.asarray(np.eye(y.shape[-1]) - weight[..., None] * derivative)


def difference_jacobian(evaluate: Callable[[float, Array], Array], t: float, y: Array, value: Array) -> Array:
    """``df/dy`` by forward differences, of shape (..., d, d): d evaluations."""
    d = y.shape[-1]
    found = np.empty((*y.shape, d), np.result_type(y, value))
    largest = np.abs(y).max(axis=-1)
    least = np.where(largest > 0.0, 1e-3 * largest, 1.0)
    for i in range(d):
        width = 1.5e-8 * np.maximum(np.abs(y[..., i]), least)
        moved = np.array(y)
        moved[..., i] += width
        width = (moved[..., i] - y[..., i]).real  # what was really added
        found[..., i] = (evaluate(t, moved) - value) / width[..., None]
    return found
