"""Test equations from applications."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems.base import TestEquation, equation, stored_reference
from hpfracc.special import mittag_leffler_matrix

__all__ = ["pharmacokinetics", "viscoelastic_oscillator"]

Array = np.ndarray[Any, Any]


@equation
def pharmacokinetics(
    alpha: float = 0.6,
    to_tissue: float = 1.2,
    to_blood: float = 0.5,
    excreted: float = 0.4,
    dose: float = 100.0,
    t_end: float = 20.0,
) -> TestEquation:
    r"""Pharmacokinetics with two compartments and excretion, all of one order, so that mass is conserved.

    .. math:: D^\alpha b = -(k_t + k_e) b + k_b s, \quad D^\alpha s = k_t b - k_b s, \quad D^\alpha e = k_e b

    with the amounts b in the blood, s in the tissue and e excreted; :math:`b + s + e` equals the dose at all times.
    (Different orders in the three equations would not conserve mass.)

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``.
    to_tissue, to_blood, excreted : float
        The rates :math:`k_t, k_b, k_e`.
    dose : float
        The amount in the blood at 0.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        Solved by :math:`E_\alpha(A t^\alpha) y_0`, with the Mittag-Leffler function of a matrix.
    """
    matrix = np.array(
        [[-(to_tissue + excreted), to_blood, 0.0], [to_tissue, -to_blood, 0.0], [excreted, 0.0, 0.0]],
    )
    y0 = np.array([dose, 0.0, 0.0])

    def fun(t: float, y: Array) -> Array:
        blood, tissue = y[..., 0], y[..., 1]
        moved, left = to_tissue * blood - to_blood * tissue, excreted * blood
        return np.stack([-moved - left, moved, left], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array(
            [[-(to_tissue + excreted), to_blood, 0.0], [to_tissue, -to_blood, 0.0], [excreted, 0.0, 0.0]],
        )

    def solution(t: Array) -> Array:
        powers = np.asarray(t, dtype=float)[:, np.newaxis, np.newaxis] ** alpha
        return np.asarray((mittag_leffler_matrix(matrix * powers, alpha) @ y0).T)

    return TestEquation(
        name="pharmacokinetics",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=y0,
        alpha=alpha,
        solution=solution,
        source="A. Dokoumetzidis, R. Magin, P. Macheras, J. Pharmacokinet. Pharmacodyn. 37 (2010) 507-524",
        parameters={"to_tissue": to_tissue, "to_blood": to_blood, "excreted": excreted, "dose": dose},
    )


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
        ``0 < beta < 1``; the closer to 1, the more viscous (and the less elastic) the damper.
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
