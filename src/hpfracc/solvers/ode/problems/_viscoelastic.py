"""An oscillator on a viscoelastic spring: a fractional damper between solid and fluid."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation, stored_reference
from hpfracc.special import mittag_leffler_matrix

__all__ = ["viscoelastic_oscillator"]

Array = np.ndarray[Any, Any]


@equation
def viscoelastic_oscillator(
    beta: float = 0.5, mass: float = 1.0, damping: float = 0.4, stiffness: float = 4.0, t_end: float = 20.0
) -> TestEquation:
    r"""The fractional Kelvin-Voigt oscillator, released from rest at 1.

    .. math:: m x'' + c D^{\beta} x + k x = 0

    as a system of orders :math:`\beta, 1 - \beta, 1` for :math:`x, D^\beta x, x'`.

    Parameters
    ----------
    beta : float
        ``0 < beta < 1``: the nearer to 1, the more the damper is a fluid.
    mass, damping, stiffness : float
        m, c, k.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        For ``beta = 1/2`` solved by a Mittag-Leffler function of a 4 x 4 matrix; stored values for some other beta.
    """
    companion = np.zeros((4, 4))
    companion[[0, 1, 2], [1, 2, 3]] = 1.0
    companion[3, 0], companion[3, 1] = -stiffness / mass, -damping / mass

    def solution(t: Array) -> Array:
        powers = np.sqrt(np.asarray(t, dtype=float))[:, np.newaxis, np.newaxis]
        z = mittag_leffler_matrix(companion * powers, 0.5) @ np.array([1.0, 0.0, 0.0, 0.0])
        return np.asarray(z[:, :3].T)

    def fun(t: float, y: Array) -> Array:
        return np.stack([y[..., 1], y[..., 2], -(damping * y[..., 1] + stiffness * y[..., 0]) / mass], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-stiffness / mass, -damping / mass, 0.0]])

    orders = (beta, 1.0 - beta, 1.0)
    usual = (mass, damping, stiffness, t_end) == (1.0, 0.4, 4.0, 20.0)
    return TestEquation(
        name="viscoelastic_oscillator",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.array([1.0, 0.0, 0.0]),
        alpha=orders,
        solution=solution if beta == 0.5 else None,
        reference=stored_reference("viscoelastic_oscillator", orders) if usual else None,
        source="Y. A. Rossikhin, M. V. Shitikova, Appl. Mech. Rev. 63 (2010) 010801",
        parameters={"mass": mass, "damping": damping, "stiffness": stiffness},
    )
