r"""Prices of options far out of the money, with relative digits, and the transform of Heston's model in closed form.

With :math:`\kappa(s) = \ln E\,e^{s X_T}` and the log-moneyness :math:`k = \ln(K/F)`,

.. math:: \frac{1}{2\pi i} \int_{p - i\infty}^{p + i\infty} \frac{e^{\kappa(s) + (1-s)k}}{s(s-1)}\,ds

is the price of the call over F for p > 1, and of the put for p < 0. Where the integrand on the real axis is least, the
line passes through its saddle point, and nothing cancels (R. Lee, "Option pricing by transform methods", J. Comput.
Finance 7, 2004).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hpfracc.errors import SolveError

__all__ = ["classic_exponent", "far_prices"]

_EPS = 2.0**-52
#: Distances of p from the strip [0, 1], and how often the last step before an explosion of the moment is halved.
_DISTANCES, _HALVINGS = 0.25 * 1.25 ** np.arange(90), 5
#: Nodes of the integral, doubled until two sums agree to this relative difference.
_NODES, _AGREE = (40, 80, 160, 320, 640, 1280, 2560), 1e-7
#: A part smaller than the largest by exp(-_NEGLIGIBLE) is below rounding.
_NEGLIGIBLE = 38.0

#: The exponent :math:`\kappa(s)` at complex s, and its absolute error.
Transform = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def far_prices(transform: Transform, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Undiscounted prices out of the money over the forward, and their errors, infinite where there is none."""
    value, error = np.zeros(k.shape), np.full(k.shape, np.inf)
    for side in (1.0, -1.0):
        here = np.nonzero(side * k > 0.0)[0]
        if not here.size:
            continue
        p, moments = _moments(transform, side, float(np.abs(k[here]).max()))
        if not p.size:
            continue
        best = (moments + (1.0 - p) * k[here, None] - np.log(p * (p - 1.0))).argmin(axis=1)
        for index in np.unique(best):
            which = here[best == index]
            value[which], error[which] = _along(transform, float(p[index]), float(moments[index]), k[which])
    return value, error


def _moments(transform: Transform, side: float, farthest: float) -> tuple[np.ndarray, np.ndarray]:
    """Real exponents p on one side of the strip up to the saddle point of the farthest strike, and their moments.

    Up to the explosion of the moments at most: beyond it the solution found is not that of the model, which shows by an
    error that is not small or by a logarithm that is not convex.
    """
    distances, values, slope, step = [0.0], [0.0], -math.inf, 0
    beyond, halvings = math.inf, 0
    while step < _DISTANCES.size and halvings <= _HALVINGS:
        distance = float(_DISTANCES[step]) if beyond == math.inf else 0.5 * (distances[-1] + beyond)
        try:
            exponent, error = transform(np.array([complex(0.5 + side * (0.5 + distance))]))
            moment = float(exponent[0].real) if error[0] <= 1e-4 else math.nan
        except SolveError:
            moment = math.nan
        rise = (moment - values[-1]) / (distance - distances[-1])
        if not rise >= slope:
            beyond, halvings = distance, halvings + 1
            continue
        distances.append(distance)
        values.append(moment)
        slope = rise
        step, halvings = step + 1, halvings + (beyond < math.inf)
        if slope > 2.0 * farthest:
            break
    return 0.5 + side * (0.5 + np.array(distances[1:])), np.array(values[1:])


def _along(transform: Transform, p: float, moment: float, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integral along ``s = p + i d sinh(y)``, d the distance of p from the nearest pole."""
    scale = max(p - 1.0, -p)
    offset = moment + (1.0 - p) * k

    def parts(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        s = p + 1j * scale * np.sinh(y)
        exponent, error = transform(s)
        error = error + _EPS * (2.0 + np.abs(exponent) + np.abs(s * k[:, None]))
        exponent = exponent - moment - 1j * s.imag * k[:, None]
        # A modulus above that on the real axis is not that of a transform.
        error = np.where(exponent.real > 1e-6, np.inf, error)
        part = np.exp(np.minimum(exponent.real, 1.0) + 1j * exponent.imag) * scale * np.cosh(y) / (s * (s - 1.0))
        return part, np.abs(part) * error

    y = np.linspace(0.0, 12.0, 61)
    sizes = np.abs(parts(y)[0]).max(axis=0)
    large = np.nonzero(sizes > sizes.max() * math.exp(-_NEGLIGIBLE))[0]
    cut = float(y[min(large[-1] + 1, y.size - 1)])
    total, inside, before = np.zeros(k.shape), np.zeros(k.shape), np.full(k.shape, np.inf)
    for level, nodes in enumerate(_NODES):
        numbers = np.arange(nodes + 1) if level == 0 else np.arange(1, nodes, 2)
        part, error = parts(cut / nodes * numbers)
        weights = np.where(numbers == 0, 0.5, 1.0)
        total, inside = total + part.real @ weights, inside + error @ weights
        found = total * cut / nodes
        change = np.abs(found - before)
        if np.all(change <= _AGREE * np.abs(found)):
            break
        before = found
    # Halving the step squares an exponentially decreasing error.
    quadrature = np.where(change <= _AGREE * np.abs(found), 1e-3 * change, change)
    height = np.exp(offset) / math.pi
    positive = found > 0.0
    return (
        np.where(positive, height * found, 0.0),
        np.where(positive, height * (quadrature + cut / nodes * inside + sizes[-1]), np.inf),
    )


def classic_exponent(
    c: np.ndarray, b: np.ndarray, g: float, T: float, weights: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    r"""``weights @ (I h, h)`` at T of the Riccati equation :math:`h' = c + b h + g h^2`, and its error.

    In the form without discontinuities of the logarithm (R. Lord and C. Kahl, "Complex logarithms in Heston-like
    models", Mathematical Finance 20, 2010).
    """
    root = np.sqrt(b * b - 4.0 * g * c)  # numpy's root has a real part of at least 0
    near, far = root - b, -root - b
    flat = np.abs(near) < np.abs(far)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(flat, far / (2.0 * g), 2.0 * c / near)
        ratio = np.where(flat, far / near, 4.0 * g * c / near**2)
    falling = np.exp(-root * T)
    end = limit * -np.expm1(-root * T) / (1.0 - ratio * falling)
    logarithm = np.log((1.0 - ratio * falling) / (1.0 - ratio)) / g
    size = np.abs(weights[0]) * (np.abs(limit) * T + np.abs(logarithm) + 1.0 / g) + np.abs(weights[1] * end)
    return weights[0] * (limit * T - logarithm) + weights[1] * end, 4.0 * _EPS * size
