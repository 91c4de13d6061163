"""What lies between the steps where the equation is stiff, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode.adaptive.stencil import Stencil

__all__ = ["Between", "interpolate_states"]

Array = np.ndarray[Any, Any]

_INSIDE = np.linspace(0.1, 0.9, 5)


@dataclass(frozen=True, slots=True)
class Between:
    """The solution over the newest step.

    Attributes
    ----------
    coefficients : array or None
        Of the polynomial through the newest states, in powers of x; None where the method's own integral is closer.
    error : float
        Its estimated error, in units of the tolerance.
    order : float
        The error behaves like this power of the step.
    """

    coefficients: Array | None
    error: float
    order: float


def interpolate_states(stencil: Stencil, states: Array, tolerance: Array, own: tuple[float, float]) -> Between:
    """The better of the method's integral, with the error and order ``own``, and a polynomial through ``states``.

    At the steps of a stiff equation an error of the right-hand side is damped by the solution of the step's equation;
    in the integral between them it is not. The states themselves are smooth there: of the polynomials through 2, 3, ...
    of them, the newest first, the one with the smallest next term is taken.
    """
    best = Between(None, *own)
    for points in range(2, min(stencil.points, len(states))):
        difference = stencil.differences[points, : points + 1] @ states[: points + 1]
        shape = float(
            np.abs(_INSIDE[:, None] ** np.arange(points + 1) @ stencil.polynomials[points, : points + 1]).max()
        )
        error = shape * float((np.abs(difference) / tolerance).max())
        if error < best.error:
            coefficients = stencil.coefficients(points - 1)[:, :points] @ states[:points]
            best = Between(coefficients, error, float(points))
    return best
