"""The three-parameter (Prabhakar) Mittag-Leffler function.

For a third parameter g that is no whole number, in NumPy. E = (1/2 pi i) int e^s s^-b (1 - z s^-a)^-g ds has no
singularity on the principal sheet but the origin where ``|arg z| >= pi a``, so one parabola serves there. At large
``|z|`` the first m terms of the expansion of ``(1 - s^a/z)^-g`` are taken as they stand and the rest is integrated.
Elsewhere there is the power series. Every way gives a bound of its rounding, and the least decides; where none is
small, it is an error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpfracc._arrays import library_of
from hpfracc.engine.execution.operation import get_operation
from hpfracc.engine.numerics.gamma import reciprocal_gammas
from hpfracc.engine.numerics.mittag_leffler_plan import (
    check_parameters,
    choose_parabola,
    parabola,
)
from hpfracc.errors import InvalidInputError, UnsupportedDtypeError

__all__ = ["prabhakar"]

_EPS = 2.0**-53
#: Relative error, by its bound, beyond which a value is refused.
_WORST = 1e-8
_MOST_TERMS = 4000
Array = np.ndarray[Any, Any]


def prabhakar(z: Any, alpha: float, beta: float, gamma: float, *, backend: Any = None) -> Any:
    """E_{alpha,beta}^gamma(z): see :func:`hpfracc.special.mittag_leffler`."""
    if not isinstance(gamma, int | float | np.integer | np.floating) or not math.isfinite(gamma):
        raise InvalidInputError(f"gamma={gamma!r}: the Mittag-Leffler function takes a finite real number here")
    if gamma == int(gamma) and gamma >= 1:
        # (d/dz)^n E_{a,b} = n! E_{a,b+an}^{n+1}
        order = int(gamma) - 1
        derivative = get_operation("mittag_leffler")(
            z, alpha=alpha, beta=beta - alpha * order, order=order, backend=backend
        )
        return derivative / math.factorial(order)
    check_parameters(alpha, beta)
    if library_of(z) != "numpy":
        raise UnsupportedDtypeError(
            f"gamma={gamma!r} is no whole number, and E for such is computed in NumPy only; convert z to a NumPy array"
        )
    if backend not in (None, "numpy"):
        raise InvalidInputError(f"backend={backend!r}: for gamma={gamma!r} there is NumPy only; leave backend out")
    points = np.ravel(z).astype(np.complex128)
    with np.errstate(all="ignore"):
        value, bound = _series(points, alpha, beta, gamma)
        if alpha <= 1:
            inside = np.abs(np.angle(points)) >= math.pi * alpha * (1 - 4 * _EPS)
            for terms in (0, 1, 2, 4, 8, 16):
                other, other_bound = _contour(points[inside], alpha, beta, gamma, terms)
                better = other_bound < bound[inside]
                where = np.nonzero(inside)[0][better]
                value[where], bound[where] = other[better], other_bound[better]
        # An overflow is an answer only where all terms have one sign.
        overflows = np.isinf(value) & (points.real > 0) & (points.imag == 0) & (gamma > 0)
        bad = ~((bound <= _WORST * np.abs(value)) & np.isfinite(value)) & ~overflows & ~np.isnan(points)
    if bad.any():
        raise InvalidInputError(
            f"E with alpha={alpha!r}, beta={beta!r}, gamma={gamma!r} at z={z.ravel()[bad][0]!r} and "
            f"{int(bad.sum()) - 1} other points: only |arg z| >= pi alpha with alpha <= 1, small |z| and whole gamma "
            "are within reach; change z or gamma"
        )
    result = value if np.iscomplexobj(z) else value.real
    dtype = z.dtype if z.dtype.kind in "fc" else np.float64
    return result.reshape(z.shape).astype(dtype)[()]


def _series(z: Array, alpha: float, beta: float, gamma: float) -> tuple[Array, Array]:
    """The power series and a bound of its error: rounding of the terms, and the last ones."""
    count = min(_MOST_TERMS, max(4, int((170.0 - beta) // alpha) + 1))
    inverse = reciprocal_gammas(alpha, beta, count)
    total, sizes = np.zeros_like(z), np.zeros(z.shape)
    power = np.ones_like(z)
    last = np.full(z.shape, np.inf)
    for k in range(count):
        term = inverse[k] * power
        total += term
        sizes += np.abs(term)
        last = np.abs(term)
        power *= z * ((gamma + k) / (k + 1))
        if k > 8 and bool((last <= _EPS / 8 * sizes).all()):
            break
    return total, 4 * _EPS * sizes + 64 * last


def _contour(z: Array, alpha: float, beta: float, gamma: float, terms: int) -> tuple[Array, Array]:
    """The integral after ``terms`` terms of the expansion at infinity, and a bound of its rounding."""
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
            if terms:
                factor = s ** (alpha * gamma - beta) * _rest(s**alpha / z, coefficients, gamma, terms)
            else:
                factor = s**-beta * (1 - z * s**-alpha) ** -gamma
            part = weight * np.exp(s) * factor
            value, size = value + part, size + np.abs(part)
    return value * scale, 8 * _EPS * size * np.abs(scale)


def _rest(t: Array, coefficients: Array, gamma: float, terms: int) -> Array:
    """``(1 - t)^-gamma`` without its first terms, by its own series where those would cancel."""
    small = np.where(np.abs(t) < 0.5, t, 0.0)
    series = np.zeros_like(t)
    for coefficient in coefficients[: terms - 1 : -1]:
        series = series * small + coefficient
    direct = (1 - t) ** -gamma
    for k in range(terms):
        direct = direct - coefficients[k] * t**k
    return np.asarray(np.where(np.abs(t) < 0.5, series * small**terms, direct))
