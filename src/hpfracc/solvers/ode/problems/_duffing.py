"""Duffing's hardening spring under a periodic load, with a memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation, stored_reference

__all__ = ["duffing"]

Array = np.ndarray[Any, Any]


@equation
def duffing(
    alpha: float = 0.9, damping: float = 0.3, cubic: float = 1.0, load: float = 0.5, frequency: float = 1.2
) -> TestEquation:
    r"""Duffing's oscillator on [0, 20], from rest at 1.

    .. math:: D^\alpha x = v, \qquad D^\alpha v = -\delta v - x - \beta x^3 + \gamma \cos \omega t

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``.
    damping, cubic, load, frequency : float
        delta, beta, gamma, omega; the usual ones lead to a periodic motion, not to chaos.

    Returns
    -------
    TestEquation
        With stored values for the usual parameters and some orders.
    """

    def fun(t: float, y: Array) -> Array:
        x, v = y[..., 0], y[..., 1]
        return np.stack([v, load * math.cos(frequency * t) - damping * v - x - cubic * x**3], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array([[0.0, 1.0], [-1.0 - 3.0 * cubic * float(y[0]) ** 2, -damping]])

    usual = (damping, cubic, load, frequency) == (0.3, 1.0, 0.5, 1.2)
    return TestEquation(
        name="duffing",
        fun=fun,
        jac=jac,
        t_span=(0.0, 20.0),
        y0=np.array([1.0, 0.0]),
        alpha=alpha,
        reference=stored_reference("duffing", alpha) if usual else None,
        source="X. Gao, J. Yu, Chaos, Solitons and Fractals 24 (2005) 1097-1104 (another choice of constants)",
        parameters={"damping": damping, "cubic": cubic, "load": load, "frequency": frequency},
    )
