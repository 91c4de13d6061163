"""The three-parameter (Prabhakar) Mittag-Leffler function.

In NumPy if the third parameter g is not an integer. For ``|arg z| >= pi a`` the integrand of
E = (1/2 pi i) int e^s s^-b (1 - z s^-a)^-g ds is singular only at the origin of the principal sheet, so one parabola is
enough. At large ``|z|`` the first m terms of the expansion of ``(1 - s^a/z)^-g`` are added in closed form and the
remainder is integrated. Elsewhere the power series is used. Each method has a bound of its rounding error, and the
smallest bound decides; if none is small, the function raises an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import dtype_name, library_of
from hpfracc._plugs import over_chunks
from hpfracc._xp import namespace_of
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.numerics.gamma import reciprocal_gammas
from hpfracc.engine.numerics.mittag_leffler_plan import check_parameters, choose_parabola, parabola
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

__all__ = ["prabhakar"]

_EPS = 2.0**-53
#: Maximum relative error bound of a value; beyond it the function raises an error.
_MAX_ERROR = 1e-8
_MAX_TERMS = 4000
#: From this alpha on values grow in all directions, and the constant term never adds to a small one.
_GROWING = 2.5
Array = np.ndarray[Any, Any]


@over_chunks
def prabhakar(z: Any, alpha: float, beta: float, gamma: float, *, backend: Any = None) -> Any:
    """E_{alpha,beta}^gamma(z); see :func:`hpfracc.special.mittag_leffler`."""
    if not isinstance(gamma, int | float | np.integer | np.floating) or not math.isfinite(gamma):
        raise InvalidInputError(f"gamma={gamma!r} is not a finite real number; use one")
    if gamma == int(gamma) and gamma >= 1:
        # (d/dz)^n E_{a,b} = n! E_{a,b+an}^{n+1}
        order = int(gamma) - 1
        derivative = get_operation("mittag_leffler")(
            z, alpha=alpha, beta=beta - alpha * order, order=order, backend=backend
        )
        value = derivative / math.factorial(order)
        # The shifted beta is rounded, which matters to 1/Gamma near its zeros, in the constant term.
        exact = float(reciprocal_gammas(alpha, beta, 1)[0])
        lost = exact - float(reciprocal_gammas(alpha, beta - alpha * order, 1, 0, order)[0])
        if abs(lost) > 16 * _EPS * abs(exact):
            inside = abs(z) < (1.0 if alpha < _GROWING else math.inf)
            value = value + lost * namespace_of(z).astype(inside, dtype_name(value))
        return value
    check_parameters(alpha, beta)
    if library_of(z) != "numpy":
        raise UnsupportedDtypeError(
            f"gamma={gamma!r} is not an integer, and such values are computed in NumPy only; convert z to a NumPy array"
        )
    if backend not in (None, "numpy"):
        raise InvalidInputError(f"backend={backend!r}, but gamma={gamma!r} is computed in NumPy only; omit backend")
    points = np.ravel(z).astype(np.complex128)
    with np.errstate(all="ignore"):
        count = min(_MAX_TERMS, max(4, int((170.0 - beta) // alpha) + 1))
        k, inverse = np.arange(float(count)), reciprocal_gammas(alpha, beta, count)
        value, bound = power_series(points, inverse, (gamma + k) / (k + 1.0), np.full(count, 4.0), -beta / alpha)
        # Infinity is a valid result only where all terms have the same sign.
        overflows = np.isinf(value) & (points.real > 0) & (points.imag == 0) & (gamma > 0)
        bound[~np.isfinite(value)] = np.inf
        value[~np.isfinite(value) & ~overflows] = np.nan
        if alpha <= 1:
            inside = np.abs(np.angle(points)) >= math.pi * alpha * (1 - 4 * _EPS)
            inside &= ~(bound <= 16 * _EPS * np.abs(value))
            for terms in (0, 1, 2, 4, 8, 16):
                other, other_bound = _contour(points[inside], alpha, beta, gamma, terms)
                better = other_bound < bound[inside]
                where = np.nonzero(inside)[0][better]
                value[where], bound[where] = other[better], other_bound[better]
        bad = ~((bound <= _MAX_ERROR * np.abs(value)) & np.isfinite(value)) & ~overflows & ~np.isnan(points)
    if bad.any():
        raise InvalidInputError(
            f"E with alpha={alpha!r}, beta={beta!r}, gamma={gamma!r} at z={z.ravel()[bad][0]!r} and "
            f"{int(bad.sum()) - 1} other points cannot be computed accurately; use |arg z| >= pi alpha with "
            "alpha <= 1, small |z|, or an integer gamma"
        )
    result = value if np.iscomplexobj(z) else value.real
    dtype = z.dtype if z.dtype.kind in "fc" else np.float64
    return result.reshape(z.shape).astype(dtype)[()]


def power_series(z: Array, coefficients: Array, ratios: Array, slack: Array, pole: float = 0.0) -> tuple[Array, Array]:
    """``sum_k c_k prod_(j<k) ratios_j z^k``, and a bound of its error: that of term k is ``slack[k]`` roundings.

    Coefficients before ``pole``, where those of integer parameters may all be 0, do not end it.
    """
    total, sizes, power = np.zeros_like(z), np.zeros(z.shape), np.ones_like(z)
    last = np.full(z.shape, np.inf)
    for k, coefficient in enumerate(coefficients):
        term = coefficient * power
        total += term
        # Some coefficients are 0.
        last = np.abs(power) * np.abs(coefficients[max(k - 3, 0) : k + 1]).max()
        sizes += np.abs(term) * slack[k]
        power *= z * ratios[k]
        if k > max(8.0, pole) and bool(
            (np.abs(power) * np.abs(coefficients[k : k + 4]).max() <= _EPS / 8 * sizes).all()
        ):
            break
    return total, _EPS * sizes + 64 * last


def _contour(z: Array, alpha: float, beta: float, gamma: float, terms: int) -> tuple[Array, Array]:
    """``terms`` terms of the expansion at infinity plus the integral of the remainder, and a bound of the rounding."""
    mu, step, _ = choose_parabola(math.ceil(4 * max(beta, 0.0)) / 4, 1.0)
    value, size = np.zeros_like(z), np.zeros(z.shape)
    scale = (-z) ** -gamma if terms else np.ones_like(z)
    coefficients = np.cumprod([1.0] + [(gamma + k) / (k + 1) for k in range(terms + 80)])
    inverse = reciprocal_gammas(-alpha, beta - alpha * gamma, terms + 1)
    for k in range(terms - 1, -1, -1):
        term = coefficients[k] * inverse[k] * z ** float(-k)
        value, size = value + term, size + np.abs(term)
    nodes, widths = parabola(mu, step, np.arange(math.ceil(12 / step)) + 0.5)
    for node, width in zip(nodes, widths, strict=True):
        for s, weight in ((node, width), (node.conjugate(), width.conjugate())):
            # By halves, because the whole power may leave the range of float64.
            half = s ** ((alpha * gamma * bool(terms) - beta) / 2)
            rest = _remainder(s**alpha / z, coefficients, gamma, terms) if terms else (1 - z * s**-alpha) ** -gamma
            part = (half * np.exp(s)) * (half * weight) * rest
            value, size = value + part, size + np.abs(part)
    return value * scale, 8 * _EPS * size * np.abs(scale)


def _remainder(t: Array, coefficients: Array, gamma: float, terms: int) -> Array:
    """``(1 - t)^-gamma`` without its first terms, by its series where they would cancel."""
    small = np.where(np.abs(t) < 0.5, t, 0.0)
    series = np.zeros_like(t)
    for coefficient in coefficients[: terms - 1 : -1]:
        series = series * small + coefficient
    direct = (1 - t) ** -gamma
    for k in range(terms):
        direct = direct - coefficients[k] * t**k
    return np.asarray(np.where(np.abs(t) < 0.5, series * small**terms, direct))
