"""Test equations: with solutions in closed form, nonlinear ones, and those of applications."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.problems.base import TestEquation, equation
from hpfracc.special import mittag_leffler, mittag_leffler_matrix

__all__ = [
    "bagley_torvik",
    "brusselator",
    "diethelm",
    "duffing",
    "lorenz",
    "lotka_volterra",
    "pharmacokinetics",
    "relaxation",
    "viscoelastic_oscillator",
]

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
    )


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

    return TestEquation(
        name="brusselator",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.array([1.2, 2.8]),
        alpha=alpha,
        source="R. Garrappa, Mathematics 6 (2018) 16, section 6",
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
        return np.array([[growth - hunt * predators, -hunt * prey], [feed * predators, feed * prey - death]])

    return TestEquation(
        name="lotka_volterra",
        fun=fun,
        jac=jac,
        t_span=(0.0, 15.0),
        y0=np.array([2.0, 1.0]),
        alpha=alpha,
        source="E. Ahmed, A. M. A. El-Sayed, H. A. A. El-Saka, J. Math. Anal. Appl. 325 (2007) 542-553",
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

    return TestEquation(
        name="duffing",
        fun=fun,
        jac=jac,
        t_span=(0.0, 20.0),
        y0=np.array([1.0, 0.0]),
        alpha=alpha,
        source="X. Gao, J. Yu, Chaos, Solitons and Fractals 24 (2005) 1097-1104 (another choice of constants)",
    )


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
        return np.asarray((mittag_leffler_matrix(jac(0.0, y0) * powers, alpha) @ y0).T)

    return TestEquation(
        name="pharmacokinetics",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=y0,
        alpha=alpha,
        solution=solution,
        source="A. Dokoumetzidis, R. Magin, P. Macheras, J. Pharmacokinet. Pharmacodyn. 37 (2010) 507-524",
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
    return TestEquation(
        name="viscoelastic_oscillator",
        fun=fun,
        jac=jac,
        t_span=(0.0, t_end),
        y0=np.array([1.0, 0.0, 0.0]),
        alpha=orders,
        solution=solution if beta == 0.5 else None,
        source="Y. A. Rossikhin, M. V. Shitikova, Appl. Mech. Rev. 63 (2010) 010801",
    )
