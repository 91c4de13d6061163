"""Lorenz's convection, with a memory: chaotic."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation, stored_reference

__all__ = ["lorenz"]

Array = np.ndarray[Any, Any]


@equation
def lorenz(alpha: float = 0.995, t_end: float = 4.0) -> TestEquation:
    r"""Lorenz's equations with :math:`\sigma = 10, \rho = 28, \beta = 8/3` from (1, 1, 1).

    .. math:: D^\alpha x = \sigma (y - x), \quad D^\alpha y = x (\rho - z) - y, \quad D^\alpha z = x y - \beta z

    Parameters
    ----------
    alpha : float
        Chaotic from about 0.993 on; below, the solution settles at one of the two equilibria.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        With stored values for some orders up to ``t_end = 4``, as far as a solution can be followed at all.
    """
    sigma, rho, beta = 10.0, 28.0, 8.0 / 3.0

    def fun(t: float, y: Array) -> Array:
        u, v, w = y[..., 0], y[..., 1], y[..., 2]
        return np.stack([sigma * (v - u), u * (rho - w) - v, u * v - beta * w], axis=-1)

    def jac(t: float, y: Array) -> Array:
        u, v, w = (float(value) for value in y)
        return np.array([[-sigma, sigma, 0.0], [rho - w, -1.0, -u], [v, u, -beta]])

    return TestEquation(
        name="lorenz",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.ones(3),
        alpha=alpha,
        reference=stored_reference("lorenz", alpha) if t_end == 4.0 else None,
        chaotic=True,
        source="I. Grigorenko, E. Grigorenko, Phys. Rev. Lett. 91 (2003) 034101",
    )
