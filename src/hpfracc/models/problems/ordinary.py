"""Fractional initial-value problems with known solutions, for tests, documentation and comparisons."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, cast

import numpy as np

from hpfracc.models.problems.base import MadeProblem, Maker, maker
from hpfracc.special import mittag_leffler, mittag_leffler_matrix

__all__ = [
    "Reference",
    "TestEquation",
    "bagley_torvik",
    "brusselator",
    "diethelm",
    "duffing",
    "lorenz",
    "lotka_volterra",
    "pharmacokinetics",
    "relaxation",
    "stored_reference",
    "viscoelastic_oscillator",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Reference:
    """Stored values of a solution, more accurate than any tolerance.

    Attributes
    ----------
    t, y : numpy.ndarray, shapes (n,) and (d, n)
        Times, and values there.
    uncertainty : float
        The largest difference between the two resolutions they were computed with, relative to the largest value.
    """

    t: Array
    y: Array
    uncertainty: float


@dataclass(frozen=True)
class TestEquation(MadeProblem):
    r"""An initial-value problem :math:`D^\alpha y = f(t, y)` (Caputo) with a known solution.

    Attributes
    ----------
    name, source : str
        Name of the problem, and literature reference.
    fun, jac : callable, callable or None
        ``fun(t, y)``, for ``y`` of shape (..., d), and ``jac(t, y)``, of shape (d, d).
    t_span : tuple of float
        The usual interval.
    y0, dy0 : numpy.ndarray of shape (d,), tuple of such arrays
        Initial values, and initial derivatives for orders above 1.
    alpha : float or tuple of float
        The order, or one for each component.
    solution : callable or None
        ``solution(t)`` of shape (d, n) for ``t`` of shape (n,), if it is known in closed form.
    reference : Reference or None
        Stored values, if it is not.
    chaotic : bool
        Whether errors grow exponentially, so that no solver follows the solution for long.
    parameters : dict
        Its parameters, apart from orders, initial values and the end of the interval.
    """

    __test__ = False  # its name begins with "Test", and pytest would collect it

    name: str
    fun: Callable[[float, Array], Array]
    t_span: tuple[float, float]
    y0: Array
    alpha: float | tuple[float, ...]
    dy0: tuple[Array, ...] = ()
    jac: Callable[[float, Array], Array] | None = None
    solution: Callable[[Array], Array] | None = None
    reference: Reference | None = None
    chaotic: bool = False
    source: str = ""
    parameters: dict[str, float] = field(default_factory=dict)

    def known(self) -> tuple[Array, Array]:
        """Times after the start, and the solution there: in closed form, or stored."""
        if self.solution is not None:
            start, stop = self.t_span
            t = start + (stop - start) * np.array([1e-3, 1e-2, 0.05, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])
            return t, self.solution(t)
        if self.reference is not None:
            return self.reference.t, self.reference.y
        raise LookupError(f"no solution of {self.name!r} is stored for the order {self.alpha}; see stored_reference()")


#: Arguments of the functions that create equations: orders, and what is not a parameter of the equation.
_ORDERS, _DATA = ("alpha", "beta"), ("y0", "v0", "t_end")


def _equation(source: str) -> Callable[[Maker], Maker]:
    """Decorator that gives an equation its source, parameters, and stored solution for the usual ones."""

    def complete(found: TestEquation, given: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
        is_usual = all(value == usual[name] for name, value in given.items() if name not in _ORDERS)
        parameters = {name: value for name, value in given.items() if name not in (*_ORDERS, *_DATA)}
        reference = stored_reference(found.name, found.alpha) if is_usual else None
        return {"source": source, "reference": reference, "parameters": parameters}

    return maker(complete)


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("references.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def stored_reference(name: str, alpha: float | tuple[float, ...]) -> Reference | None:
    """The stored solution of a problem with its usual parameters and this order, if there is one.

    By collocation of the Volterra equation, in two resolutions: ``benchmarks/make_ode_references.py``.
    """
    orders = alpha if isinstance(alpha, tuple) else (alpha,)
    entry = _table().get(f"{name} {' '.join(f'{order:g}' for order in orders)}")
    if entry is None:
        return None
    return Reference(np.array(entry["t"]), np.array(entry["y"]), float(entry["uncertainty"]))


def _linear_solution(matrix: Array, y0: Sequence[float] | Array, alpha: float) -> Callable[[Array], Array]:
    """The solution of ``D^alpha y = matrix y`` as a function of t."""

    def solution(t: Array) -> Array:
        powers = np.asarray(t, dtype=float)[:, np.newaxis, np.newaxis] ** alpha
        return np.asarray((mittag_leffler_matrix(matrix * powers, alpha) @ np.asarray(y0)).T)

    return solution


@_equation("F. Mainardi, Fractional Calculus and Waves in Linear Viscoelasticity (2010), ch. 1")
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
    y0, v0, t_end : float
        The value and, for ``alpha > 1``, the derivative at 0; the end of the interval.

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

    def fun(t: float, y: Array) -> Array:
        return -rate * y

    def jac(t: float, y: Array) -> Array:
        return np.array([[-rate]])

    dy0 = (np.array([v0]),) if second else ()
    return TestEquation("relaxation", fun, (0.0, t_end), np.array([y0]), alpha, dy0, jac, solution)


@_equation("K. Diethelm, N. J. Ford, A. D. Freed, Numer. Algorithms 36 (2004) 31-52, example 2")
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

    def jac(t: float, y: Array) -> Array:
        return np.array([[-1.5 * math.sqrt(abs(float(y[0]))) * math.copysign(1.0, float(y[0]))]])

    dy0 = (np.zeros(1),) if alpha > 1 else ()
    return TestEquation("diethelm", fun, (0.0, 1.0), np.zeros(1), alpha, dy0, jac, solution)


@_equation("P. J. Torvik, R. L. Bagley, J. Appl. Mech. 51 (1984) 294-298")
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
    y0, v0, t_end : float
        Position and velocity at 0, and the end of the interval.

    Returns
    -------
    TestEquation
        Solved by a Mittag-Leffler function of the 4 x 4 matrix of the equivalent system of order 1/2.
    """
    rest = load / stiffness
    companion = np.eye(4, k=1)
    companion[3] = -stiffness / mass, 0.0, 0.0, -drag / mass
    about_rest = _linear_solution(companion, [y0 - rest, 0.0, v0, 0.0], 0.5)

    def solution(t: Array) -> Array:
        z = about_rest(t)
        return np.stack([rest + z[0], z[2], z[3]])

    def fun(t: float, y: Array) -> Array:
        return np.stack([y[..., 1], y[..., 2], (load - drag * y[..., 2] - stiffness * y[..., 0]) / mass], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-stiffness / mass, 0.0, -drag / mass]])

    start, orders = np.array([y0, v0, 0.0]), (1.0, 0.5, 0.5)
    return TestEquation("bagley_torvik", fun, (0.0, t_end), start, orders, jac=jac, solution=solution)


@_equation("R. Garrappa, Mathematics 6 (2018) 16, section 6")
def brusselator(
    alpha: float | tuple[float, float] = 0.8, a: float = 1.0, mu: float = 4.0, t_end: float = 20.0
) -> TestEquation:
    r"""The Brusselator: an oscillating chemical reaction.

    .. math:: D^{\alpha} x = a - (\mu + 1) x + x^2 y, \qquad D^{\alpha} y = \mu x - x^2 y

    Parameters
    ----------
    alpha : float or pair of float
        One order for both components, or one for each.
    a, mu, t_end : float
        Concentrations, and the end of the interval.

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

    return TestEquation("brusselator", fun, (0.0, t_end), np.array([1.2, 2.8]), alpha, jac=jac)


@_equation("E. Ahmed, A. M. A. El-Sayed, H. A. A. El-Saka, J. Math. Anal. Appl. 325 (2007) 542-553")
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

    return TestEquation("lotka_volterra", fun, (0.0, 15.0), np.array([2.0, 1.0]), alpha, jac=jac)


@_equation("I. Grigorenko, E. Grigorenko, Phys. Rev. Lett. 91 (2003) 034101")
def lorenz(alpha: float = 0.995, t_end: float = 4.0) -> TestEquation:
    r"""Lorenz's equations with :math:`\sigma = 10, \rho = 28, \beta = 8/3` from (1, 1, 1).

    .. math:: D^\alpha x = \sigma (y - x), \quad D^\alpha y = x (\rho - z) - y, \quad D^\alpha z = x y - \beta z

    Parameters
    ----------
    alpha, t_end : float
        Chaotic above an order of about 0.993; below, it converges to an equilibrium. The end of the interval.

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

    return TestEquation("lorenz", fun, (0.0, t_end), np.ones(3), alpha, jac=jac, chaotic=True)


@_equation("X. Gao, J. Yu, Chaos, Solitons and Fractals 24 (2005) 1097-1104 (another choice of constants)")
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

    return TestEquation("duffing", fun, (0.0, 20.0), np.array([1.0, 0.0]), alpha, jac=jac)


@_equation("A. Dokoumetzidis, R. Magin, P. Macheras, J. Pharmacokinet. Pharmacodyn. 37 (2010) 507-524")
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
    dose, t_end : float
        The amount in the blood at 0, and the end of the interval.

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
        return np.array([[-(to_tissue + excreted), to_blood, 0.0], [to_tissue, -to_blood, 0.0], [excreted, 0.0, 0.0]])

    solution = _linear_solution(jac(0.0, y0), y0, alpha)
    return TestEquation("pharmacokinetics", fun, (0.0, t_end), y0, alpha, jac=jac, solution=solution)


@_equation("Y. A. Rossikhin, M. V. Shitikova, Appl. Mech. Rev. 63 (2010) 010801")
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
    mass, damping, stiffness, t_end : float
        m, c, k, and the end of the interval.

    Returns
    -------
    TestEquation
        For ``beta = 1/2`` solved by a Mittag-Leffler function of a 4 x 4 matrix; stored values for some other beta.
    """
    companion = np.eye(4, k=1)
    companion[3] = -stiffness / mass, -damping / mass, 0.0, 0.0
    whole = _linear_solution(companion, [1.0, 0.0, 0.0, 0.0], 0.5)

    def fun(t: float, y: Array) -> Array:
        return np.stack([y[..., 1], y[..., 2], -(damping * y[..., 1] + stiffness * y[..., 0]) / mass], axis=-1)

    def jac(t: float, y: Array) -> Array:
        return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [-stiffness / mass, -damping / mass, 0.0]])

    orders, solution = (beta, 1.0 - beta, 1.0), (lambda t: whole(t)[:3]) if beta == 0.5 else None
    y0 = np.array([1.0, 0.0, 0.0])
    return TestEquation("viscoelastic_oscillator", fun, (0.0, t_end), y0, orders, jac=jac, solution=solution)
