"""The Wright function and its M-Wright (Mainardi) case, in NumPy.

W(z) = (1/2 pi i) int exp(s + z s^-lambda) s^-mu ds along a contour around the negative axis. The contour is a parabola
through the saddle points of the exponent, which avoids cancellation, and the step of the trapezoid rule is halved until
the value no longer changes (for such contours see Aceto and Durastante, ESAIM M2AN 56 (2022) 2181-2196). Where it has
no saddle point, the contour s = width (1 + i u)^p with the smallest integral of absolute values is used; with p > 2 its
ends are on the next sheets of s^-lambda, beyond the cut. Near zero the power series is used. Each method has an error
bound, and the smallest bound decides.
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
#: Integral of the absolute values, relative to the value, up to which no other contour is tried.
_LITTLE = 8.0
_SMALLEST = complex(1e-300)
_MAX_GAMMA = 150.0
_MAX_NODES = 8192
#: Logarithm of a saddle point beyond which W is below the range of float64 if it decreases.
_LARGEST = 600.0
#: Parameters at which the size of the integrand is sampled, on both sides of the contour's vertex.
_SAMPLED = np.concatenate([-np.geomspace(12.0, 1e-5, 120), [0.0], np.geomspace(1e-5, 12.0, 120)])
_COARSE = np.linspace(-12.0, 12.0, 121)
#: Contours to choose from: log width, turn and power. Both ends have arg s in (pi/2, 3 pi/2), where e^s decreases.
_CANDIDATES = np.array(
    [
        (width * math.log(2.0), turn, power)
        for width in range(-16, 13, 2)
        for power in (1.5, 2.0, 2.4, 2.7, 2.9)
        for turn in np.arange(-4, 5) * math.pi / 16
        if power - 2 * abs(turn) / math.pi > 1.1 and power + 2 * abs(turn) / math.pi < 2.95
    ]
)
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
        If neither the series nor the integral is accurate to eight digits: for ``-1 < lam < 0`` and large z beside the
        positive axis, where W is far smaller than it is for other ``mu``.

    See Also
    --------
    m_wright, mittag_leffler

    Notes
    -----
    The relative error is about 1e-14, for large z times the condition abs(z W'/W); near a zero, or where W is small for
    one ``mu`` only, it is relative to the surrounding values. A point takes 0.3 ms, beside the positive axis with
    ``lam < 0`` some milliseconds.

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
        value, error = _series(points, lam, mu)
        for i in np.nonzero(~(error <= 8 * _EPS) & np.isfinite(points))[0]:
            point = complex(points[i])
            other, other_error = _integral(point, lam, mu)
            if not error[i] <= other_error:
                value[i], error[i] = other, other_error
            if error[i] > _MAX_ERROR:
                # Near a zero the error is relative to the values around it: z W' is one of W.
                slope, slope_error = _integral(point, lam, lam + mu)
                if slope_error <= _MAX_ERROR:
                    error[i] /= max(1.0, abs(point * slope / value[i]))
        bad = ~(error <= _MAX_ERROR) & np.isfinite(points)
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
    """The power series and its relative error."""
    count = 400 if lam == 0 else int(min(400, max(4, (math.copysign(_MAX_GAMMA, lam) - mu) / lam)))
    k = np.arange(float(count))
    # The effect of half an ulp in the argument, and rgamma's own error, grow with the argument.
    slack = 2.0 + np.abs(lam * k + mu) / 8
    value, bound = power_series(
        z, reciprocal_gammas(lam, mu, count), 1.0 / (k + 1.0), slack, -mu / lam if lam > 0 else 0.0
    )
    return value, np.where(bound == 0, 0.0, np.where(np.isfinite(value), bound / np.abs(value), np.inf))


def _integral(z: complex, lam: float, mu: float) -> tuple[complex, float]:
    """The integral on the parabola through the saddle points, or on the best contour, and its relative error."""
    log_width, underflows = _saddle(z, lam)
    if underflows:
        return 0j, 0.0
    value, error, top, cancelled = _contour(z, lam, mu, (max(math.log(max(0.5, mu)), log_width), 0.0, 2.0))
    if not cancelled <= _LITTLE:
        candidates = _CANDIDATES if z.imag else _CANDIDATES[_CANDIDATES[:, 1] == 0]
        sizes = _exponent(_COARSE, z, lam, mu, candidates.T[:, :, None])[0].real
        sizes = np.nan_to_num(sizes.max(1) + np.log(np.exp(sizes - sizes.max(1, keepdims=True)).sum(1)), nan=np.inf)
        other = _contour(z, lam, mu, candidates[sizes.argmin()])
        if not error <= other[1]:
            value, error, top = other[:3]
    if top > 1000 and lam >= 0 and z.imag == 0 < z.real:
        return complex(math.inf), 0.0
    scale = math.exp(max(-800.0, min(top, 1400.0)) / 2)
    return complex(value.real * scale * scale, value.imag * scale * scale), error


def _exponent(t: Array, z: complex, lam: float, mu: float, contour: Any) -> tuple[Array, Array]:
    """The logarithm of the integrand in t on ``s = exp(log_width + i turn) (1 + i sinh t)^power``, and its error."""
    log_width, turn, power = contour
    log_one = np.log1p(1j * np.sinh(t))
    w = log_width + 1j * turn + power * log_one
    if lam < -0.5:
        # s + z s^-lam without cancellation as lam approaches -1.
        whole = np.exp(-lam * w) * (np.expm1((1 + lam) * w) + (1 + z))
        size = np.abs(whole)
    else:
        s, rest = np.exp(w), z * np.exp(-lam * w)
        whole, size = s + rest, np.abs(s) + np.abs(rest)
    error = 4.0 + (size * (2 + np.abs(w)) + np.abs((mu - 1) * w)) / 4
    return whole + (1 - mu) * w - log_one + np.log(power * np.cosh(t) / (2 * math.pi)), _EPS * error


def _contour(z: complex, lam: float, mu: float, contour: Any) -> tuple[complex, float, float, float]:
    """The integral on a contour, its relative error, the logarithm of its scale, and the size of the integrand."""
    sizes = _exponent(_SAMPLED, z, lam, mu, contour)[0].real
    top = float(sizes.max())
    if not -_LARGEST - 400.0 <= top < math.inf:
        # The integral of the sizes is a bound: the value underflows, or nothing is known.
        return 0j, 0.0 if top < 0 else math.inf, 0.0, 0.0 if top < 0 else math.inf
    used = np.nonzero(sizes >= top - 42.0)[0]
    low, high = _SAMPLED[max(used[0] - 1, 0)], _SAMPLED[min(used[-1] + 1, _SAMPLED.size - 1)]
    before, nodes = complex(np.inf), 32
    while True:
        step = (high - low) / nodes
        exponent, errors = _exponent(low + step * np.arange(nodes + 1), z, lam, mu, contour)
        missed = max(float(exponent.real.max()) - top, 0.0)  # a peak between the samples
        top += missed
        parts = np.exp(exponent - top)
        value = complex(parts.sum()) * step or _SMALLEST
        sizes = np.abs(parts)
        rounding = float((sizes * errors).sum()) * step
        change = abs(value - before * math.exp(-missed))
        # The error after a halving is about the square of the change, so a change at rounding level is final.
        if change <= rounding or nodes >= _MAX_NODES:
            error = rounding + (change if nodes >= _MAX_NODES else 0.0)
            return value, error / abs(value), top, float(sizes.sum()) * step / abs(value)
        before, nodes = value, 2 * nodes


def _saddle(z: complex, lam: float) -> tuple[float, bool]:
    """Log of the width of the parabola through the farthest saddle of ``s + z s^-lam``, and whether W underflows."""
    target = lam * z
    if target == 0:
        return -math.inf, False
    size, angle = math.log(abs(target)) / (1 + lam), cmath.phase(target)
    turns = range(-math.ceil(1 + lam / 2), math.ceil(1 + lam / 2) + 1)
    angles = [(angle + 2 * math.pi * turn) / (1 + lam) for turn in turns]
    cosine = max((math.cos(theta / 2) for theta in angles if abs(theta) < math.pi), default=0.0)
    underflows = lam < 0 and size > _LARGEST and cosine > math.sqrt(0.5)
    return (size + 2 * math.log(cosine) if cosine > 0 else -math.inf), underflows
