"""Relaxation: the equation whose solution is the Mittag-Leffler function."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation
from hpfracc.special import mittag_leffler

__all__ = ["relaxation"]

Array = np.ndarray[Any, Any]


@equation
def relaxation(
    alpha: float = 0.5, rate: float = 1.0, y0: float = 1.0, v0: float = 0.0, t_end: float = 10.0
) -> TestEquation:
    r"""Relaxation (or, for ``1 < alpha <= 2``, oscillation): :math:`D^\alpha y = -\lambda y`.

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 2``.
    rate : float
        lambda; a large one makes the equation stiff.
    y0, v0 : float
        The value and, for ``alpha > 1``, the derivative at 0.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        With :math:`y = y_0 E_\alpha(-\lambda t^\alpha) + v_0 t E_{\alpha,2}(-\lambda t^\alpha)`.
    """
    second = alpha > 1

    def solution(t: Array) -> Array:
        z = -rate * np.asarray(t, dtype=float) ** alpha
        y = y0 * mittag_leffler(z, alpha, backend="numpy")
        if second:
            y = y + v0 * t * mittag_leffler(z, alpha, 2.0, backend="numpy")
        return np.asarray(y)[np.newaxis]

    return TestEquation(
        name="relaxation",
        fun=lambda t, y: -rate * y,
        jac=lambda t, y: np.array([[-rate]]),
        t_span=(0.0, t_end),
        y0=np.array([y0]),
        dy0=(np.array([v0]),) if second else (),
        alpha=alpha,
        solution=solution,
        source="F. Mainardi, Fractional Calculus and Waves in Linear Viscoelasticity (2010), ch. 1",
        parameters={"rate": rate},
    )
