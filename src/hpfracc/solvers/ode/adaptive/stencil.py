"""Interpolation of the right-hand side and of the states through the newest points, at any distances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Between", "Stencil", "interpolate_states", "make_stencil"]

Array = np.ndarray[Any, Any]

#: Points within a step at which interpolation errors are evaluated.
_INSIDE = np.linspace(0.1, 0.9, 5)


@dataclass(frozen=True, slots=True)
class Stencil:
    r"""Newton's form of the polynomials through 1, 2, ... of the newest points.

    Times are counted backwards from the newest point in units of the newest step, :math:`x = (t_{n+1} - t)/h`: the
    points lie at :math:`x_0 = 0, x_1 = 1, x_2, \dots`

    Attributes
    ----------
    differences : numpy.ndarray, shape (R, R)
        Row r maps the values at the points to the divided difference :math:`F[x_0, \dots, x_r]`.
    polynomials : numpy.ndarray, shape (R, R)
        Row r holds the coefficients of :math:`\prod_{i<r} (x - x_i)` in powers of x.
    """

    differences: Array
    polynomials: Array

    @property
    def points(self) -> int:
        """Number of points."""
        return int(self.differences.shape[0])

    def coefficients(self, degree: int) -> Array:
        """Matrix from values at the points to the coefficients, in powers of x, of the polynomial of that degree."""
        rows = slice(0, degree + 1)
        return np.asarray(self.polynomials[rows, rows].T @ self.differences[rows])

    def contributions(self, alpha: float) -> Array:
        r"""Contribution of each divided difference to the integral over the newest step.

        Shape (R, R): row r maps the values to :math:`\int_0^1 x^{\alpha-1} F[x_0..x_r] \prod_{i<r}(x - x_i) dx`.
        """
        integrals = self.polynomials @ (1.0 / (alpha + np.arange(self.points)))
        return np.asarray(integrals[:, np.newaxis] * self.differences)


def make_stencil(nodes: Array) -> Stencil:
    """The stencil of points at ``nodes``, which start with 0, 1."""
    count = len(nodes)
    differences = np.eye(count)
    polynomials = np.zeros((count, count))
    polynomials[0, 0] = 1.0
    for r in range(1, count):
        polynomials[r, 1:] = polynomials[r - 1, :-1]
        polynomials[r] -= nodes[r - 1] * polynomials[r - 1]
    # Row r: the product formula of divided differences, 1 / prod (x_i - x_j).
    for r in range(1, count):
        for i in range(r + 1):
            differences[r, i] = 1.0 / np.prod([nodes[i] - nodes[j] for j in range(r + 1) if j != i])
        differences[r, r + 1 :] = 0.0
    return Stencil(differences, polynomials)


@dataclass(frozen=True, slots=True)
class Between:
    """The solution over the newest step.

    Attributes
    ----------
    coefficients : array or None
        Coefficients of the polynomial through the newest states, in powers of x; None if the method's integral is more
        accurate.
    error : float
        Its estimated error, in units of the tolerance.
    order : float
        Power of the step with which the error decreases.
    """

    coefficients: Array | None
    error: float
    order: float


def interpolate_states(
    stencil: Stencil, states: Array, ratio: Callable[[Array], float], own: tuple[float, float]
) -> Between:
    """The more accurate of the method's integral, with error and order ``own``, and a polynomial through ``states``.

    At the steps of a stiff equation an error of the right-hand side is damped by the implicit solve; in the integral
    between them it is not. The states are smooth there: of the polynomials through the newest 2, 3, ... states, the one
    with the smallest next term is used; ``ratio`` is the size of a term in units of the tolerance.
    """
    best = Between(None, *own)
    for points in range(2, min(stencil.points, len(states))):
        difference = stencil.differences[points, : points + 1] @ states[: points + 1]
        shape = float(
            np.abs(_INSIDE[:, None] ** np.arange(points + 1) @ stencil.polynomials[points, : points + 1]).max()
        )
        error = shape * ratio(difference)
        if error < best.error:
            coefficients = stencil.coefficients(points - 1)[:, :points] @ states[:points]
            best = Between(coefficients, error, float(points))
    return best
