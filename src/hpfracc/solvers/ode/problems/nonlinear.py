"""Nonlinear test equations, with stored references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems.base import TestEquation, equation, stored_reference

__all__ = ["brusselator", "duffing", "lorenz", "lotka_volterra"]

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
        One order for both components, or one for each.
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


@equation
def lotka_volterra(
    alpha: float = 0.8, growth: float = 2.0, hunt: float = 1.0, death: float = 1.5, feed: float = 1.0
) -> TestEquation:
    r"""The Lotka-Volterra equations for prey x and predators y on [0, 15].

    .. math:: D^\alpha x = x (g - h y), \qquad D^\alpha y = y (f x - d)

    Parameters
    ----------
    alpha : float
        ``0 < alpha <= 1``; below 1 the solution spirals into the equilibrium ``(d/f, g/h)``.
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


@equation
def lorenz(alpha: float = 0.995, t_end: float = 4.0) -> TestEquation:
    r"""Lorenz's equations with :math:`\sigma = 10, \rho = 28, \beta = 8/3` from (1, 1, 1).

    .. math:: D^\alpha x = \sigma (y - x), \quad D^\alpha y = x (\rho - z) - y, \quad D^\alpha z = x y - \beta z

    Parameters
    ----------
    alpha : float
        Chaotic above about 0.993; below, the solution converges to one of the two equilibria.
    t_end : float
        The end of the interval.

    Returns
    -------
    TestEquation
        With stored values for some orders up to ``t_end = 4``, beyond which errors grow too large.
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
