"""The Brusselator, with a memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation, stored_reference

__all__ = ["brusselator"]

Array = np.ndarray[Any, Any]


@equation
def brusselator(
    alpha: float | tuple[float, float] = 0.8, a: float = 1.0, mu: float = 4.0, t_end: float = 20.0
) -> TestEquation:
    r"""The Brusselator: an oscillating chemical reaction.

    .. math:: D^{\alpha} x = a - (\mu + 1) x + x^2 y, \qquad D^{\alpha} y = \mu x - x^2 y

    Parameters
    ----------
    alpha : float or pair of float
        The order of both, or of each.
    a, mu : float
        Concentrations.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        With stored values for the usual parameters and some orders.
    """

    def fun(t: float, y: Array) -> Array:
        x, z = y[..., 0], y[..., 1]
        product = x * x * z
        return np.stack([a - (mu + 1.0) * x + product, mu * x - product], axis=-1)

    def jac(t: float, y: Array) -> Array:
        x, z = float(y[0]), float(y[1])
        return np.array([[2 * x * z - mu - 1.0, x * x], [mu - 2 * x * z, -x * x]])

    usual = a == 1.0 and mu == 4.0 and t_end == 20.0
    return TestEquation(
        name="brusselator",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.array([1.2, 2.8]),
        alpha=alpha,
        reference=stored_reference("brusselator", alpha) if usual else None,
        source="R. Garrappa, Mathematics 6 (2018) 16, section 6",
        parameters={"a": a, "mu": mu},
    )
