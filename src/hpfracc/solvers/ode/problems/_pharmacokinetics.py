"""A drug between blood and tissue, nothing of it lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation
from hpfracc.special import mittag_leffler_matrix

__all__ = ["pharmacokinetics"]

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
    r"""Two compartments and what has left them, of one common order, so that the mass is conserved.

    .. math:: D^\alpha b = -(k_t + k_e) b + k_b s, \quad D^\alpha s = k_t b - k_b s, \quad D^\alpha e = k_e b

    with the blood b, the tissue s, the excreted e, and :math:`b + s + e` equal to the dose at all times. (Different
    orders in different equations would make or lose mass.)

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``.
    to_tissue, to_blood, excreted : float
        The rates :math:`k_t, k_b, k_e`.
    dose : float
        What is in the blood at 0.
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
