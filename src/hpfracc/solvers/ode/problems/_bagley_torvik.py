"""Bagley and Torvik's plate in a viscous fluid: two orders in one equation."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation
from hpfracc.special import mittag_leffler_matrix

__all__ = ["bagley_torvik"]

Array = np.ndarray[Any, Any]


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
