"""Diethelm's test: a nonlinear equation whose solution is three powers of t."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation

__all__ = ["diethelm"]

Array = np.ndarray[Any, Any]


@equation
def diethelm(alpha: float = 0.5) -> TestEquation:
    r"""Diethelm's nonlinear test on [0, 1], solved by :math:`y = t^8 - 3 t^{4+\alpha/2} + \frac94 t^\alpha`.

    .. math:: D^\alpha y = \frac{40320}{\Gamma(9-\alpha)} t^{8-\alpha}
              - 3 \frac{\Gamma(5+\alpha/2)}{\Gamma(5-\alpha/2)} t^{4-\alpha/2} + \frac94 \Gamma(\alpha+1)
              + \bigl(\tfrac32 t^{\alpha/2} - t^4\bigr)^3 - |y|^{3/2}

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 2``.

    Returns
    -------
    TestEquation
        Starting at 0 (and, for ``alpha > 1``, with derivative 0). Its right-hand side has no bounded second
        derivative where y vanishes, so high orders do not show on it.
    """
    first = 40320.0 / math.gamma(9.0 - alpha)
    second = 3.0 * math.gamma(5.0 + alpha / 2) / math.gamma(5.0 - alpha / 2)
    third = 2.25 * math.gamma(alpha + 1.0)

    def fun(t: float, y: Array) -> Array:
        forcing = first * t ** (8 - alpha) - second * t ** (4 - alpha / 2) + third
        return np.asarray(forcing + (1.5 * t ** (alpha / 2) - t**4) ** 3 - np.abs(y) ** 1.5)

    def solution(t: Array) -> Array:
        return np.asarray(t**8 - 3.0 * t ** (4 + alpha / 2) + 2.25 * t**alpha)[np.newaxis]

    return TestEquation(
        name="diethelm",
        fun=fun,
        jac=lambda t, y: np.array([[-1.5 * math.sqrt(abs(float(y[0]))) * math.copysign(1.0, float(y[0]))]]),
        t_span=(0.0, 1.0),
        y0=np.zeros(1),
        dy0=(np.zeros(1),) if alpha > 1 else (),
        alpha=alpha,
        solution=solution,
        source="K. Diethelm, N. J. Ford, A. D. Freed, Numer. Algorithms 36 (2004) 31-52, example 2",
    )
