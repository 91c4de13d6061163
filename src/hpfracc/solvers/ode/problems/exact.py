"""Test equations with solutions in closed form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems.base import TestEquation, equation
from hpfracc.special import mittag_leffler, mittag_leffler_matrix

__all__ = ["bagley_torvik", "diethelm", "relaxation"]

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
        The rate lambda; a large one makes the equation stiff.
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
        Starting at 0 (and, for ``alpha > 1``, with derivative 0). The second derivative of its right-hand side is
        unbounded where y vanishes, so methods of high order do not reach their order.
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


@equation
def bagley_torvik(
    mass: float = 1.0,
    drag: float = 0.5,
    stiffness: float = 1.0,
    load: float = 0.5,
    y0: float = 1.0,
    v0: float = 0.0,
    t_end: float = 20.0,
) -> TestEquation:
    r"""A thin plate hanging in a viscous fluid, under a constant load.

    .. math:: m y'' + b D^{3/2} y + k y = p

    as a system of orders 1, 1/2, 1/2 for :math:`y, y', D^{3/2} y`.

    Parameters
    ----------
    mass, drag, stiffness, load : float
        m, b, k, p.
    y0, v0 : float
        Position and velocity at 0.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        Solved by a Mittag-Leffler function of the 4 x 4 matrix of the equivalent system of order 1/2.
    """
    companion = np.zeros((4, 4))
    companion[[0, 1, 2], [1, 2, 3]] = 1.0
    companion[3, 0], companion[3, 3] = -stiffness / mass, -drag / mass
    rest = load / stiffness

    def solution(t: Array) -> Array:
        powers = np.sqrt(np.asarray(t, dtype=float))[:, np.newaxis, np.newaxis]
        z = mittag_leffler_matrix(companion * powers, 0.5) @ np.array([y0 - rest, 0.0, v0, 0.0])
        return np.stack([rest + z[:, 0], z[:, 2], z[:, 3]])

    def fun(t: float, y: Array) -> Array:
        return np.stack([y[..., 1], y[..., 2], (load - drag * y[..., 2] - stiffness * y[..., 0]) / mass], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-stiffness / mass, 0.0, -drag / mass]])

    return TestEquation(
        name="bagley_torvik",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.array([y0, v0, 0.0]),
        alpha=(1.0, 0.5, 0.5),
        solution=solution,
        source="P. J. Torvik, R. L. Bagley, J. Appl. Mech. 51 (1984) 294-298",
        parameters={"mass": mass, "drag": drag, "stiffness": stiffness, "load": load},
    )
