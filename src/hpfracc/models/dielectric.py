r"""Dielectrics: permittivity over frequency, and the decay of the polarisation in time.

With :math:`s = i\omega` the permittivity is :math:`\varepsilon' - i\varepsilon''`.

References
----------
R. Garrappa, F. Mainardi, G. Maione, Fract. Calc. Appl. Anal. 19 (2016) 1105-1160.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.special import gammaincc, log1p

from hpfracc.models.base import described
from hpfracc.models.responses import ResponseModel
from hpfracc.special import mittag_leffler

__all__ = ["Dielectric", "cole_cole", "davidson_cole", "havriliak_negami"]

Array = np.ndarray[Any, Any]

#: Points on a hyperbola about the negative axis, times t, and their weights: J. A. C. Weideman, L. N. Trefethen, Math.
#: Comp. 76 (2007) 1341-1356.
_ANGLES = 1j * 1.0818 / 16 * (np.arange(16) + 0.5) - 1.1721
_POINTS = 4.4921 * 16 * (1.0 + np.sin(_ANGLES))
_WEIGHTS = 4.4921 * 1.0818 / np.pi * np.exp(_POINTS) * np.cos(_ANGLES)


@final
class Dielectric(ResponseModel):
    """A dielectric; see :class:`ResponseModel` for ``simulate``, ``fit`` and ``plot``."""

    def permittivity(self, w: Any) -> Any:
        """The relative permittivity, with a negative imaginary part."""
        return self.simulate(w, "permittivity")

    def decay(self, t: Any) -> Any:
        """The polarisation after a constant unit field is switched off at 0, without that which follows at once."""
        return self.simulate(t, "decay")

    def draw(self, ax: Any, x: Array, y: Array, quantity: str, **style: Any) -> Any:
        """Draw loss against storage (Cole and Cole's plot), or the decay."""
        if quantity != self.frequency:
            return super().draw(ax, x, y, quantity, **style)
        ax.plot(y.real, -y.imag, **style)
        ax.set(xlabel=r"$\varepsilon'$", ylabel=r"$\varepsilon''$")
        ax.set_aspect("equal", adjustable="datalim")
        return ax


def cole_cole(strength: float = 1.0, tau: float = 1.0, alpha: float = 0.7, infinite: float = 1.0) -> Dielectric:
    r"""Cole and Cole's model, whose plot is a symmetric depressed arc.

    .. math:: \varepsilon(s) = \varepsilon_\infty + \frac{\Delta\varepsilon}{1 + (s\tau)^\alpha}, \quad
              \text{decay } \Delta\varepsilon\,E_\alpha(-(t/\tau)^\alpha)

    Parameters
    ----------
    strength : float
        The difference of the permittivities at low and at high frequencies, dimensionless.
    tau : float
        Relaxation time in seconds.
    alpha : float
        ``0 < alpha <= 1``; 1 is Debye's model. (Cole and Cole write 1 - alpha.)
    infinite : float
        Permittivity at high frequencies, dimensionless.

    Returns
    -------
    Dielectric
    """
    return _made(
        described("cole_cole", strength, tau, infinite, alpha),
        lambda s, size, tau, infinite, a: infinite + size / (1.0 + (s * tau) ** a),
        lambda t, size, tau, infinite, a: size * np.asarray(mittag_leffler(-((t / tau) ** a), a)),
    )


def davidson_cole(strength: float = 1.0, tau: float = 1.0, gamma: float = 0.5, infinite: float = 1.0) -> Dielectric:
    r"""Davidson and Cole's model, whose arc is skewed towards high frequencies.

    .. math:: \varepsilon(s) = \varepsilon_\infty + \frac{\Delta\varepsilon}{(1 + s\tau)^\gamma}, \quad
              \text{decay } \Delta\varepsilon\,\Gamma(\gamma, t/\tau)/\Gamma(\gamma)

    Parameters
    ----------
    strength, tau, infinite : float
        As in :func:`cole_cole`.
    gamma : float
        ``0 < gamma <= 1``; 1 is Debye's model.

    Returns
    -------
    Dielectric
    """
    return _made(
        described("davidson_cole", strength, tau, infinite, gamma),
        lambda s, size, tau, infinite, g: infinite + size / (1.0 + s * tau) ** g,
        lambda t, size, tau, infinite, g: size * gammaincc(g, t / tau),
    )


def havriliak_negami(
    strength: float = 1.0, tau: float = 1.0, alpha: float = 0.8, gamma: float = 0.6, infinite: float = 1.0
) -> Dielectric:
    r"""Havriliak and Negami's model, of which Cole-Cole and Davidson-Cole are special cases.

    .. math:: \varepsilon(s) = \varepsilon_\infty + \frac{\Delta\varepsilon}{(1 + (s\tau)^\alpha)^\gamma}, \quad
              \text{decay } \Delta\varepsilon\big(1 - x^\gamma E^\gamma_{\alpha,\alpha\gamma+1}(-x)\big), \quad
              x = (t/\tau)^\alpha

    Parameters
    ----------
    strength, tau, infinite : float
        As in :func:`cole_cole`.
    alpha, gamma : float
        Above 0, at most 1: width and skewness of the arc.

    Returns
    -------
    Dielectric
        Its decay has about 13 digits relative to ``strength``, and 11 of its own where it falls like a power of t.
    """

    def decay(t: Array, size: float, tau: float, infinite: float, a: float, g: float) -> Array:
        if a == 1.0:
            return np.asarray(size * gammaincc(g, t / tau))
        found = inverse_transform(lambda s: -np.expm1(-g * log1p(s**a)) / s, t / tau)
        return np.where(t > 0.0, size * found, size)

    return _made(
        described("havriliak_negami", strength, tau, infinite, alpha, gamma),
        lambda s, size, tau, infinite, a, g: infinite + size / (1.0 + (s * tau) ** a) ** g,
        decay,
    )


def inverse_transform(transform: Any, t: Array) -> Array:
    """The inverse Laplace transform at t >= 0 of a function that is analytic off the negative axis; at 0 its limit."""
    start = np.min(t, where=t > 0.0, initial=1.0) * 1e-12
    x = np.where(t > 0.0, t, start)[..., np.newaxis]
    return np.asarray((transform(_POINTS / x) * _WEIGHTS / x).real.sum(axis=-1))


def _made(fields: dict[str, Any], transfer: Any, decay: Any) -> Dielectric:
    return Dielectric(**fields, transfer=transfer, curves={"decay": decay}, frequency="permittivity")
