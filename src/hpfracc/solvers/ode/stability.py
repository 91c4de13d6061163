r"""Linear stability of fixed-step methods: how large :math:`h^\alpha |\lambda|` may be for which :math:`\arg\lambda`.

For :math:`D^\alpha y = \lambda y` a method is a convolution, and its solution behaves like :math:`\xi^{-n}`, where
:math:`\xi` is the zero of least modulus of a polynomial in :math:`z = h^\alpha \lambda` whose coefficients are the
generating functions of the weights: :math:`1 - z W(\xi)` for one sum, and for PECE with m corrections

.. math:: 1 - z \big(A(\xi) - a_0\big) \sum_{i<m} (a_0 z)^i - a_0^m z^{m+1} B(\xi).

On each ray the first z with a zero at :math:`|\xi| = e^{-\epsilon}` ends the region of stability (C. Lubich, IMA J.
Numer. Anal. 6 (1986) 87-101; R. Garrappa, Int. J. Comput. Math. 87 (2010) 2281-2290). The solution itself decays for
:math:`|\arg\lambda| > \alpha\pi/2` (D. Matignon, 1996); where it grows there is nothing to be stable.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc.solvers.ode.fixed.scheme import Scheme, cached_weights

__all__ = ["stability_number", "stable_radii"]

Array = np.ndarray[Any, Any]

#: Growth for each step that counts as stable, as a rate: slower growth is an error like others, and is estimated.
_RATE = 0.02
#: Weights in the generating functions, whose tail is below 1e-9 at that rate.
_LENGTH = 1024
#: Intervals of the angle from 0 to pi.
_INTERVALS = 128
#: An eigenvalue whose angle is less than this fraction below ``alpha pi/2`` counts as one that does not grow.
_MARGIN = 0.03


def stable_radii(name: str, scheme: Scheme, alpha: float) -> Array:
    """Largest stable ``h^alpha |lambda|`` in each of 128 intervals of ``|arg lambda|`` from 0 to pi; inf if unbounded.

    Parameters
    ----------
    name : str
        Name of the method, under which the result is cached.
    scheme : Scheme
        Its weights.
    alpha : float
        The order.
    """

    def make(alpha: float, n: int) -> tuple[Array]:
        return (_radii(_boundary(scheme, alpha)),)

    # A limit that is accurate to a hundredth need not be computed for every order of a fit or an ensemble.
    alpha = max(round(alpha, 2), 0.01)
    (found,) = cached_weights(("stable radii", name, scheme.corrections), alpha, _INTERVALS, make)
    return found


def stability_number(z: Any, alpha: Any, radii: Array) -> Array:
    """``|z|`` over its largest stable value, for each ``z = h^alpha lambda``; 0 where the solution itself grows.

    Parameters
    ----------
    z : array_like of complex, shape (..., d)
        Eigenvalues of the Jacobian times ``h^alpha``.
    alpha : float or array, shape (..., 1)
        The order.
    radii : array, shape (128,) or (..., 128)
        From :func:`stable_radii`.

    Returns
    -------
    array, shape (..., d)
    """
    z = np.asarray(z)
    decays = 0.5 * math.pi * np.asarray(alpha)  # angles above this
    angle, per_radian = np.abs(np.angle(z)), _INTERVALS / math.pi
    place = np.maximum(np.floor(angle * per_radian), np.ceil(decays * per_radian))
    place = np.minimum(place, _INTERVALS - 1).astype(np.int64)
    limit = radii[place] if radii.ndim == 1 else np.take_along_axis(radii, place, axis=-1)
    return np.where(angle >= (1.0 - _MARGIN) * decays, np.abs(z) / limit, 0.0)


def _boundary(scheme: Scheme, alpha: float) -> Array:
    """The z whose solutions grow at the rate `_RATE`, shape (roots, points along the circle)."""
    weights = np.stack(scheme.weights(alpha, _LENGTH))
    symbols = np.fft.rfft(weights * np.exp(-_RATE * np.arange(_LENGTH)))
    if scheme.kind != "corrected":
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / symbols[:1])
    m, now = scheme.corrections, float(weights[1, 0])
    predicted, corrected = symbols[0], symbols[1] - now
    if m == 1:
        root = np.sqrt(0.25 * corrected**2 + now * predicted)
        return np.asarray(1.0 / np.stack([0.5 * corrected + root, 0.5 * corrected - root]))
    powers = [corrected * now**i for i in range(m)] + [now**m * predicted]  # the coefficients of z^1 .. z^(m+1)
    # The companion matrix of the reversed polynomial, whose roots are 1/z.
    matrix = np.zeros((predicted.size, m + 1, m + 1), complex)
    matrix[:, 0] = np.stack(powers, axis=-1)
    matrix[:, range(1, m + 1), range(m)] = 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1.0 / np.linalg.eigvals(matrix)).T


def _radii(boundary: Array) -> Array:
    """The least modulus of the boundary in each interval of its angle."""
    edges = np.linspace(0.0, math.pi, _INTERVALS + 1)
    radii = np.full(_INTERVALS, np.inf)
    for branch in boundary:
        angle, size = np.abs(np.angle(branch)), np.abs(branch)
        low, high = np.minimum(angle[1:], angle[:-1]), np.maximum(angle[1:], angle[:-1])
        # Roots come in any order: what jumps between two branches is no piece of the boundary.
        joined = np.abs(np.diff(branch)) <= 0.3 * np.minimum(size[1:], size[:-1])
        low[~joined], high[~joined] = angle[:-1][~joined], angle[:-1][~joined]
        met = (low[:, None] <= edges[1:]) & (high[:, None] >= edges[:-1])
        least = np.where(met, np.where(joined, np.minimum(size[1:], size[:-1]), size[:-1])[:, None], np.inf)
        radii = np.minimum(radii, least.min(axis=0))
    return radii
