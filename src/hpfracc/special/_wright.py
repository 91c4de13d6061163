"""The Wright function and its M-Wright (Mainardi) case, in NumPy.

W(z) = (1/2 pi i) int exp(s + z s^-lambda) s^-mu ds along a contour around the negative axis. The contour is a parabola
through the saddle points of the exponent, which avoids cancellation, and the step of the trapezoid rule is halved until
the value no longer changes (for such contours see Aceto and Durastante, ESAIM M2AN 56 (2022) 2181-2196). Near zero the
power series is used. Each method has an error bound, and the smallest bound decides.
"""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np

from hpfracc import _reading
from hpfracc._arrays import library_of
from hpfracc._plugs import over_chunks
from hpfracc.engine.numerics.gamma import reciprocal_gammas
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError
from hpfracc.special.prabhakar import power_series

__all__ = ["m_wright", "wright"]

_EPS = 2.0**-53
#: Maximum relative error bound of a value; beyond it the function raises an error.
_MAX_ERROR = 1e-8
_TINY = 1e-290
_MAX_GAMMA = 150.0
_MAX_NODES = 8192
#: Points at which the size of the integrand is sampled, on both sides of the parabola's vertex.
_SAMPLED = np.concatenate([-np.geomspace(60.0, 1e-4, 160), [0.0], np.geomspace(1e-4, 60.0, 160)])
Array = np.ndarray[Any, Any]


@over_chunks
def wright(z: Any, lam: float, mu: float) -> Any:
    r"""The Wright function.

    .. math:: W_{\lambda,\mu}(z) = \sum_{k=0}^{\infty} \frac{z^k}{k!\, \Gamma(\lambda k + \mu)}

    Parameters
    ----------
    z : array_like
        Real or complex NumPy values.
    lam : float
        ``-1 < lam <= 100``.
    mu : float
        From -100 to 100.

    Returns
    -------
    numpy.ndarray or scalar
        In the shape of ``z``; real for real z.

    Raises
    ------
    InvalidInputError
        If neither the series nor the integral is accurate to eight digits: for ``lam < 0`` and large z on the side
        where W oscillates.

    See Also
    --------
    m_wright, mittag_leffler

    Notes
    -----
    The relative error is about 1e-14 away from zeros; near a zero it is relative to the surrounding values.

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.wright(-1.0, 1.0, 1.0)), 12)  # J_0(2)
    0.223890779141
    """
    if library_of(z) not in ("numpy", "python"):
        raise UnsupportedDtypeError(
            f"the Wright function is computed in NumPy only; convert z, which is a {type(z).__name__}, to NumPy"
        )
    lam, mu = _reading.number("lam", lam, above=-1, most=100), _reading.number("mu", mu, least=-100, most=100)
    z = _reading.array("z", z)
    real = z.dtype.kind != "c"
    points = np.ravel(z).astype(np.complex128)
    with np.errstate(all="ignore"):
        value, bound = _series(points, lam, mu)
        for i in np.nonzero(~(bound <= 8 * _EPS * np.abs(value)) & np.isfinite(points))[0]:
            other, other_bound = _contour(complex(points[i]), lam, mu)
            if not bound[i] <= other_bound:
                value[i], bound[i] = other, other_bound
        bad = ~(bound <= _MAX_ERROR * np.abs(value) + _TINY) & np.isfinite(points)
    if bad.any():
        raise InvalidInputError(
            f"W with lam={lam!r}, mu={mu!r} at z={z.ravel()[bad][0]!r} and {int(bad.sum()) - 1} other points is lost "
            "in cancellation: its value is too small compared with its terms; use smaller |z|"
        )
    value = np.where(np.isfinite(points), value, np.nan)
    result = value.real if real else value
    return result.reshape(z.shape).astype(z.dtype if z.dtype.kind in "fc" else np.float64)[()]


@over_chunks
def m_wright(x: Any, nu: float) -> Any:
    r"""The M-Wright (Mainardi) function.

    .. math:: M_\nu(x) = W_{-\nu,1-\nu}(-x) = \sum_{k=0}^{\infty} \frac{(-x)^k}{k!\, \Gamma(-\nu k + 1 - \nu)}

    It is the density of the fundamental solution of the time-fractional diffusion equation;
    ``M_{1/2}(x) = exp(-x^2/4)/sqrt(pi)``.

    Parameters
    ----------
    x : array_like
        Real or complex NumPy values.
    nu : float
        ``0 < nu < 1``.

    Returns
    -------
    numpy.ndarray or scalar
        In the shape of ``x``; real for real x. For x > 0 the relative error stays small even for tiny values.

    See Also
    --------
    wright, mittag_leffler

    Examples
    --------
    >>> import hpfracc.special as special
    >>> round(float(special.m_wright(2.0, 0.5)), 12)
    0.20755374871
    """
    nu = _reading.number("nu", nu, above=0, below=1)
    x = _reading.array("x", x)
    return wright(-(x.astype(np.int64) if str(x.dtype) == "bool" else x), -nu, 1.0 - nu)


def _series(z: Array, lam: float, mu: float) -> tuple[Array, Array]:
    count = 400 if lam == 0 else int(min(400, max(4, (math.copysign(_MAX_GAMMA, lam) - mu) / lam)))
    k = np.arange(float(count))
    # The effect of half an ulp in the argument, and rgamma's own error, grow with the argument.
    slack = 2.0 + np.abs(lam * k + mu) / 8
    return power_series(z, reciprocal_gammas(lam, mu, count), 1.0 / (k + 1.0), slack, -mu / lam if lam > 0 else 0.0)


def _contour(z: complex, lam: float, mu: float) -> tuple[complex, float]:
    """The contour integral and a bound of its error."""
    width = max(0.5, mu, _saddle(z, lam))

    def exponent(u: Array) -> Array:
        turn = 1 + 1j * u
        s = width * turn * turn
        logs = 2 * np.log(turn) + math.log(width)
        return np.asarray(s + z * np.exp(-lam * logs) - mu * logs + np.log(turn))

    sizes = exponent(_SAMPLED).real
    top = float(sizes.max())
    used = np.nonzero(sizes > top - 42.0)[0]
    low, high = _SAMPLED[max(used[0] - 1, 0)], _SAMPLED[min(used[-1] + 1, _SAMPLED.size - 1)]
    scale = cmath.exp(complex(min(top, 700.0))) * width / math.pi
    before, nodes = complex(np.inf), 32
    while True:
        step = (high - low) / nodes
        parts = np.exp(exponent(low + step * np.arange(nodes + 1)) - top)
        value = complex(parts.sum()) * step
        rounding = 4 * _EPS * float(np.abs(parts).sum()) * step * (1 + abs(top) / 8)
        change = abs(value - before)
        # The error after a halving is about the square of the change, so a change at rounding level is final.
        if change <= rounding or nodes >= _MAX_NODES:
            return value * scale, (rounding + (change if nodes >= _MAX_NODES else 0.0)) * abs(scale)
        before, nodes = value, 2 * nodes


def _saddle(z: complex, lam: float) -> float:
    """``mu`` of the parabola through the farthest saddle point of ``s + z s^-lam`` on the principal sheet, or 0."""
    target = lam * z
    if target == 0:
        return 0.0
    size, angle = abs(target) ** (1 / (1 + lam)), cmath.phase(target)
    turns = range(-math.ceil(1 + lam / 2), math.ceil(1 + lam / 2) + 1)
    angles = [(angle + 2 * math.pi * turn) / (1 + lam) for turn in turns]
    return max((size * math.cos(theta / 2) ** 2 for theta in angles if abs(theta) < math.pi), default=0.0)
