"""Predators and prey, with a memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems._base import TestEquation, equation, stored_reference

__all__ = ["lotka_volterra"]

Array = np.ndarray[Any, Any]


@equation
def lotka_volterra(
    alpha: float = 0.8, growth: float = 2.0, hunt: float = 1.0, death: float = 1.5, feed: float = 1.0
) -> TestEquation:
    r"""Lotka and Volterra's prey x and predators y on [0, 15].

    .. math:: D^\alpha x = x (g - h y), \qquad D^\alpha y = y (f x - d)

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``; below 1 the cycles wind down to the equilibrium ``(d/f, g/h)``.
    growth, hunt, death, feed : float
        g, h, d, f.

    Returns
    -------
    TestEquation
        With stored values for the usual parameters and some orders.
    """

    def fun(t: float, y: Array) -> Array:
        prey, predators = y[..., 0], y[..., 1]
        return np.stack([prey * (growth - hunt * predators), predators * (feed * prey - death)], axis=-1)

    def jac(t: float, y: Array) -> Array:
        prey, predators = float(y[0]), float(y[1])
        return np.array(
            [[growth - hunt * predators, -hunt * prey], [feed * predators, feed * prey - death]],
        )

    usual = (growth, hunt, death, feed) == (2.0, 1.0, 1.5, 1.0)
    return TestEquation(
        name="lotka_volterra",
        fun=fun,
        jac=jac,
        t_span=(0.0, 15.0),
        y0=np.array([2.0, 1.0]),
        alpha=alpha,
        reference=stored_reference("lotka_volterra", alpha) if usual else None,
        source="E. Ahmed, A. M. A. El-Sayed, H. A. A. El-Saka, J. Math. Anal. Appl. 325 (2007) 542-553",
        parameters={"growth": growth, "hunt": hunt, "death": death, "feed": feed},
    )
