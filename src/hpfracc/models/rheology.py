r"""Viscoelastic materials: relaxation modulus G(t), creep compliance J(t) and complex modulus in closed form.

A spring-pot, :math:`\sigma = c\,D^\alpha \varepsilon`, lies between a spring (:math:`\alpha = 0`) and a dashpot
(:math:`\alpha = 1`). The others are springs and spring-pots in series and in parallel. The material is at rest before
t = 0; with the complex modulus :math:`G^*(s)`, the transforms of G and J are :math:`G^*(s)/s` and :math:`1/(s G^*(s))`.

References
----------
F. Mainardi, G. Spada, Eur. Phys. J. Special Topics 193 (2011) 133-160; H. Schiessel, R. Metzler, A. Blumen, T. F.
Nonnenmacher, J. Phys. A 28 (1995) 6567-6584; A. Bonfanti, J. L. Kaplan, G. Charras, A. Kabla, Soft Matter 16 (2020)
6002-6020.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.special import rgamma

from hpfracc.models.base import described
from hpfracc.models.dielectric import inverse_transform
from hpfracc.models.responses import ResponseModel
from hpfracc.special import mittag_leffler

__all__ = [
    "Rheology", "burgers", "jeffreys", "kelvin_voigt", "liquid_zener", "maxwell", "poynting_thomson", "springpot",
    "zener",
]  # fmt: skip

Array = np.ndarray[Any, Any]


@final
class Rheology(ResponseModel):
    """A viscoelastic material; see :class:`ResponseModel` for ``simulate``, ``fit`` and ``plot``."""

    def relaxation(self, t: Any) -> Any:
        """The relaxation modulus G(t): the stress after a unit step of strain, for t > 0."""
        return self.simulate(t, "relaxation")

    def creep(self, t: Any) -> Any:
        """The creep compliance J(t): the strain after a unit step of stress."""
        return self.simulate(t, "creep")

    def modulus(self, w: Any) -> Any:
        """The complex modulus: storage modulus as real part, loss modulus as imaginary part."""
        return self.simulate(w, "modulus")


def springpot(c: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The spring-pot, or Scott Blair's element.

    .. math:: \sigma = c\,D^\alpha\varepsilon, \quad G(t) = \frac{c\,t^{-\alpha}}{\Gamma(1-\alpha)}, \quad
              J(t) = \frac{t^\alpha}{c\,\Gamma(1+\alpha)}, \quad G^*(s) = c\,s^\alpha

    Parameters
    ----------
    c : float
        Its modulus, in pascal second^alpha.
    alpha : float
        Order from 0 (a spring) to 1 (a dashpot, whose G is an impulse at 0 and zero after it).

    Returns
    -------
    Rheology

    Examples
    --------
    >>> import hpfracc as hf
    >>> material = hf.models.springpot(2.0, alpha=0.5)
    >>> print(f"{float(material.relaxation(1.0)):.6f}")  # 2/sqrt(pi)
    1.128379
    """
    return _made(
        described("springpot", c, alpha),
        lambda s, c, a: c * s**a,
        _pot_relaxation,
        _pot_creep,
    )


def maxwell(c1: float = 1.0, alpha: float = 0.8, c2: float = 1.0, beta: float = 0.0) -> Rheology:
    r"""The fractional Maxwell model: two spring-pots in series.

    .. math:: \sigma + \frac{c_1}{c_2} D^{\alpha-\beta}\sigma = c_1 D^\alpha\varepsilon, \quad
              G(t) = c_2 t^{-\beta} E_{\alpha-\beta,1-\beta}\!\Big(-\frac{c_2}{c_1} t^{\alpha-\beta}\Big), \quad
              J(t) = \frac{t^\alpha}{c_1\Gamma(1+\alpha)} + \frac{t^\beta}{c_2\Gamma(1+\beta)}

    Parameters
    ----------
    c1, alpha : float
        Modulus in pascal second^alpha and order of the more viscous spring-pot.
    c2, beta : float
        Those of the other; ``beta = 0`` is a spring. Orders in the other sequence give the same formulas.

    Returns
    -------
    Rheology
        With ``alpha = 1, beta = 0`` the Maxwell model of viscosity c1 and modulus c2.
    """
    return _made(
        described("maxwell", c1, alpha, c2, beta),
        _maxwell_modulus,
        _maxwell_relaxation,
        lambda t, c1, a, c2, b: _pot_creep(t, c1, a) + _pot_creep(t, c2, b),
    )


def kelvin_voigt(c1: float = 1.0, alpha: float = 0.8, c2: float = 1.0, beta: float = 0.0) -> Rheology:
    r"""The fractional Kelvin-Voigt model: two spring-pots in parallel.

    .. math:: \sigma = c_1 D^\alpha\varepsilon + c_2 D^\beta\varepsilon, \quad
              J(t) = \frac{t^\alpha}{c_1} E_{\alpha-\beta,1+\alpha}\!\Big(-\frac{c_2}{c_1} t^{\alpha-\beta}\Big)

    Parameters
    ----------
    c1, alpha : float
        Modulus in pascal second^alpha and order of the more viscous spring-pot.
    c2, beta : float
        Those of the other; ``beta = 0`` is a spring.

    Returns
    -------
    Rheology
        With ``alpha = 1, beta = 0`` the Kelvin-Voigt model of viscosity c1 and modulus c2.
    """
    return _made(
        described("kelvin_voigt", c1, alpha, c2, beta),
        lambda s, c1, a, c2, b: c1 * s**a + c2 * s**b,
        lambda t, c1, a, c2, b: _pot_relaxation(t, c1, a) + _pot_relaxation(t, c2, b),
        _kelvin_creep,
    )


def zener(e0: float = 1.0, e1: float = 1.0, tau: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The fractional Zener model: a spring in parallel with a spring and a spring-pot in series.

    .. math:: G(t) = E_0 + E_1 E_\alpha(-(t/\tau)^\alpha), \quad
              G^*(s) = E_0 + E_1\frac{(s\tau)^\alpha}{1 + (s\tau)^\alpha}, \quad
              J(t) = \frac1{E_0} - \frac{E_1}{E_0 (E_0 + E_1)} E_\alpha\!\Big(-\frac{E_0}{E_0+E_1}
              (t/\tau)^\alpha\Big)

    Parameters
    ----------
    e0, e1 : float
        Moduli in pascal: ``e0`` after long, ``e0 + e1`` after short times.
    tau : float
        Relaxation time in seconds.
    alpha : float
        ``0 < alpha <= 1``; 1 is the standard linear solid.

    Returns
    -------
    Rheology
    """
    return _made(
        described("zener", e0, e1, tau, alpha),
        lambda s, e0, e1, tau, a: e0 + e1 * (s * tau) ** a / (1.0 + (s * tau) ** a),
        lambda t, e0, e1, tau, a: e0 + e1 * _decay((t / tau) ** a, a),
        lambda t, e0, e1, tau, a: 1.0 / e0 - e1 / (e0 * (e0 + e1)) * _decay(e0 / (e0 + e1) * (t / tau) ** a, a),
    )


def poynting_thomson(e0: float = 1.0, e1: float = 1.0, tau: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The fractional Poynting-Thomson model: a spring in series with a spring and a spring-pot in parallel.

    .. math:: J(t) = \frac1{E_0} + \frac{1 - E_\alpha(-(t/\tau)^\alpha)}{E_1}, \quad
              \frac1{G^*(s)} = \frac1{E_0} + \frac1{E_1 (1 + (s\tau)^\alpha)}, \quad
              G(t) = \frac{E_0 E_1 + E_0^2 E_\alpha(-\frac{E_0+E_1}{E_1} (t/\tau)^\alpha)}{E_0 + E_1}

    Parameters
    ----------
    e0, e1 : float
        Moduli in pascal: of the spring in series, and of that in parallel to the spring-pot.
    tau : float
        Retardation time in seconds.
    alpha : float
        ``0 < alpha <= 1``; 1 is the standard linear solid.

    Returns
    -------
    Rheology
        The material of a :func:`zener` model, in terms of its creep.
    """
    return _made(
        described("poynting_thomson", e0, e1, tau, alpha),
        lambda s, e0, e1, tau, a: 1.0 / (1.0 / e0 + 1.0 / (e1 * (1.0 + (s * tau) ** a))),
        lambda t, e0, e1, tau, a: (e0 * e1 + e0**2 * _decay((e0 + e1) / e1 * (t / tau) ** a, a)) / (e0 + e1),
        lambda t, e0, e1, tau, a: 1.0 / e0 + _growth((t / tau) ** a, a) / e1,
    )


def burgers(e1: float = 1.0, viscosity: float = 1.0, e2: float = 1.0, tau: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The fractional Burgers model: a spring, a dashpot, and a spring with a spring-pot in parallel, in series.

    .. math:: J(t) = \frac1{E_1} + \frac{t}{\eta} + \frac{1 - E_\alpha(-(t/\tau)^\alpha)}{E_2}

    Parameters
    ----------
    e1, viscosity : float
        Modulus in pascal and viscosity in pascal second of the spring and the dashpot in series.
    e2 : float
        Modulus of the spring beside the spring-pot.
    tau : float
        Retardation time in seconds.
    alpha : float
        ``0 < alpha <= 1``; 1 is Burgers' model.

    Returns
    -------
    Rheology
        Its relaxation modulus is an inverse transform, with about 12 digits.
    """

    def modulus(s: Array, e1: float, eta: float, e2: float, tau: float, a: float) -> Array:
        return np.asarray(s / (s / e1 + 1.0 / eta + s / (e2 * (1.0 + (s * tau) ** a))))

    return _made(
        described("burgers_fluid", e1, viscosity, e2, tau, alpha),
        modulus,
        lambda t, *values: inverse_transform(lambda s: modulus(s, *values) / s, t),
        lambda t, e1, eta, e2, tau, a: 1.0 / e1 + t / eta + _growth((t / tau) ** a, a) / e2,
    )


def jeffreys(viscosity: float = 1.0, e: float = 1.0, tau: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The fractional Jeffreys model: a dashpot in series with a spring and a spring-pot in parallel.

    .. math:: J(t) = \frac{t}{\eta} + \frac{1 - E_\alpha(-(t/\tau)^\alpha)}{E}

    Parameters
    ----------
    viscosity : float
        Of the dashpot, in pascal second.
    e, tau, alpha : float
        Modulus in pascal, retardation time in seconds, and order, ``0 < alpha <= 1``; 1 is Jeffreys' model.

    Returns
    -------
    Rheology
        Its relaxation modulus is an inverse transform, with about 12 digits; for ``alpha = 1`` without an impulse at 0.
    """

    def modulus(s: Array, eta: float, e: float, tau: float, a: float) -> Array:
        return np.asarray(s / (1.0 / eta + s / (e * (1.0 + (s * tau) ** a))))

    return _made(
        described("jeffreys", viscosity, e, tau, alpha),
        modulus,
        lambda t, *values: inverse_transform(lambda s: modulus(s, *values) / s, t),
        lambda t, eta, e, tau, a: t / eta + _growth((t / tau) ** a, a) / e,
    )


def liquid_zener(viscosity: float = 1.0, e: float = 1.0, tau: float = 1.0, alpha: float = 0.5) -> Rheology:
    r"""The fractional liquid Zener model: a dashpot in parallel with a spring and a spring-pot in series.

    .. math:: G^*(s) = \eta s + E\,\frac{(s\tau)^\alpha}{1 + (s\tau)^\alpha}, \quad G(t) = E\,E_\alpha(-(t/\tau)^\alpha)

    Parameters
    ----------
    viscosity : float
        Of the dashpot, in pascal second; its impulse at 0 is not part of G.
    e, tau, alpha : float
        Modulus in pascal, relaxation time in seconds, and order, ``0 < alpha <= 1``.

    Returns
    -------
    Rheology
        Its creep compliance is an inverse transform, with about 12 digits.
    """

    def modulus(s: Array, eta: float, e: float, tau: float, a: float) -> Array:
        return np.asarray(eta * s + e * (s * tau) ** a / (1.0 + (s * tau) ** a))

    return _made(
        described("liquid_zener", viscosity, e, tau, alpha),
        modulus,
        lambda t, _, e, tau, a: e * _decay((t / tau) ** a, a),
        lambda t, *values: inverse_transform(lambda s: 1.0 / (s * modulus(s, *values)), t),
    )


def _made(fields: dict[str, Any], transfer: Any, relaxation: Any, creep: Any) -> Rheology:
    return Rheology(**fields, transfer=transfer, curves={"relaxation": relaxation, "creep": creep}, frequency="modulus")


def _pot_relaxation(t: Array, c: float, a: float) -> Array:
    # At order 1 an impulse at 0, and nothing after.
    return np.zeros_like(t) if a == 1.0 else np.asarray(c * t**-a * rgamma(1.0 - a))


def _pot_creep(t: Array, c: float, a: float) -> Array:
    return np.asarray(t**a * rgamma(1.0 + a) / c)


def _maxwell_modulus(s: Array, c1: float, a: float, c2: float, b: float) -> Array:
    if a < b:
        c1, a, c2, b = c2, b, c1, a
    return np.asarray(c1 * s**a / (1.0 + c1 / c2 * s ** (a - b)))


def _maxwell_relaxation(t: Array, c1: float, a: float, c2: float, b: float) -> Array:
    if a < b:
        c1, a, c2, b = c2, b, c1, a
    if a == b:  # one spring-pot
        return _pot_relaxation(t, c1 * c2 / (c1 + c2), a)
    return np.asarray(c2 * t**-b * mittag_leffler(-c2 / c1 * t ** (a - b), a - b, 1.0 - b))


def _kelvin_creep(t: Array, c1: float, a: float, c2: float, b: float) -> Array:
    if a < b:
        c1, a, c2, b = c2, b, c1, a
    if a == b:
        return _pot_creep(t, c1 + c2, a)
    return np.asarray(t**a / c1 * mittag_leffler(-c2 / c1 * t ** (a - b), a - b, 1.0 + a))


def _decay(x: Array, a: float) -> Array:
    return np.asarray(mittag_leffler(-x, a))


def _growth(x: Array, a: float) -> Array:
    """``1 - E_a(-x)``, without cancellation."""
    return np.asarray(x * mittag_leffler(-x, a, 1.0 + a))
