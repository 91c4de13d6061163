"""Functions given as callables: one polynomial on all of [origin, T], and its exact fractional integral."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpfracc._arrays import to_host
from hpfracc._xp import NUMPY, array_namespace
from hpfracc.engine.execution.api import matmul
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.graded import (
    ALIKE,
    AT_END,
    DEGREE,
    between,
    derivative_matrix,
    differentiate_graded,
    end_derivatives,
    fractional_basis,
    gauss_points,
    integer_derivative,
    slope_matrix,
    transform,
    value_at_origin,
)
from hpfracc.operators.core.grids import known_values
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import constant, join, real_dtype
from hpfracc.operators.rules.first_points import infinite_at_origin

#: Numbers of points, tried in turn.
_COUNTS = (16, 32, 64, 128, 256, 512)
#: Number of points if the values are traced and unknown; the result says so.
_BLIND = 64
#: Coefficients this small relative to the largest, in units of eps, are rounding errors.
_ROUNDING = 20.0
#: Coefficients are resolved this far below the tolerance, because differentiation amplifies the truncated ones.
_RESERVE = 1e-4
#: Observed errors were up to four times the truncation level, plus rounding of the sum itself.
_SAFETY = 4.0
#: Coefficients that fall faster than this power of k fall exponentially, by some 24 until they are rounding.
_STEEP = 12.0
#: Smallest power by which the sum of the truncated terms is taken to fall.
_SLOWEST = 0.5
#: Number of Gauss points between which f is evaluated again, before its interpolant is accepted.
_LOOKS = 16
#: An order whose value at the origin has the sign of its factor.
ONE_HALF = read_order(0.5)
#: Points of the result that are processed together: a few MiB of polynomials.
_CHUNK = 16384


def differentiate(function: Function, order: Order, method: str, *, initial_terms: bool) -> Outcome:
    r"""The derivative of order alpha (the integral if it is negative) of a callable.

    f, divided by :math:`(t - t_0)^s` if such a factor is declared, is interpolated at an increasing number of Gauss
    points until its coefficients have fallen to rounding and the interpolant agrees with f at 17 further points in
    between. The operator is applied to the polynomials exactly:

    .. math:: I^\mu \big[(1+x)^s P_k^{(0,s)}(x)\big] = \frac{\Gamma(k+s+1)}{\Gamma(k+s+1+\mu)} (1+x)^{s+\mu}
        P_k^{(-\mu, s+\mu)}(x).

    For a derivative of a smooth f (s = 0) the series is first differentiated n times, and the initial terms of
    Riemann-Liouville are added if requested; with a factor of non-integer power, which has no such terms, the formula
    itself is used with a negative :math:`\mu`.

    Parameters
    ----------
    function : Function
        The callable and the points of the result.
    order : Order
        Negative for an integral.
    method : str
        ``"spectral"``, ``"graded"``, or ``"auto"``: the first, or the second if it does not converge.
    initial_terms : bool
        Whether the derivative is Riemann-Liouville's rather than Caputo's.

    References
    ----------
    M. Zayernouri, G. E. Karniadakis, J. Comput. Phys. 252 (2013) 495-517 (the formula as a spectral method).
    """
    if method not in ("auto", "spectral", "graded"):
        raise InvalidInputError(
            f"method={method!r} is for samples; a callable takes 'auto', 'spectral' or 'graded' (or sample it: f(t))"
        )
    if method == "graded":
        return differentiate_graded(function, order, initial_terms=initial_terms)
    degree = integer_derivative(order, initial_terms)
    series = _fit(function, degree)
    if not series.resolved and method == "auto" and order.plain and series.looked and degree <= DEGREE:
        return differentiate_graded(function, order, initial_terms=initial_terms)
    return _apply(series, function, order, initial_terms)


@dataclass(frozen=True, slots=True)
class _Series:
    """Values at Gauss points, the matrix that gives their coefficients, and how many of those are significant.

    ``level`` is the size of the truncated coefficients, or of rounding. ``decay`` is the power of k with which the
    coefficients fall before. ``looked`` is False if values are traced.
    """

    values: Any
    power: float
    points: int
    count: int
    matrix: np.ndarray[Any, Any]
    level: float
    decay: float
    resolved: bool
    looked: bool = True


def _fit(function: Function, degree: int) -> _Series:
    """The series, of more than ``degree`` coefficients: the derivative of that order of fewer is 0."""
    # An integer power is smooth by itself, and Caputo needs its initial terms.
    power = 0.0 if function.factor >= 0.0 and float(function.factor).is_integer() else function.factor
    length = _length(function)
    series = None
    for points in [count for count in _COUNTS if count > degree]:
        nodes, _ = gauss_points(points, power)
        at = function.origin + 0.5 * length * (1.0 + nodes)
        values = function.at(at)
        if power != 0.0:
            values = values * constant((at - function.origin) ** -power, values)
        host = known_values(values)
        if host is None:  # choose without the values
            if points < _BLIND:
                continue
            matrix = _transform_at(at, function.origin, length, points, power)
            return _Series(values, power, points, points, matrix, math.nan, math.nan, resolved=False, looked=False)
        # Rounding errors of the values, of size eps, appear in coefficient k as eps sqrt(2k + 1).
        matrix = _transform_at(at, function.origin, length, points, power)
        size = np.abs(host @ matrix).reshape(-1, points).max(axis=0)
        size /= np.sqrt(2.0 * np.arange(points) + 1.0)
        largest, tail = float(np.abs(host).max()), float(size[-max(2, points // 8) :].max())
        rounding = _ROUNDING * float(np.finfo(real_dtype(values)).eps)
        resolved = tail <= max(rounding, _RESERVE * function.rtol) * largest
        level = max(tail, 0.01 * rounding * largest)
        # Coefficients at the level of the tail are noise, which a derivative would only amplify.
        count = 1 + int(np.max(np.flatnonzero(size > 3.0 * level), initial=0)) if resolved else points
        if resolved:
            resolved = _confirmed(function, host, points, power, ALIKE * max(rounding, _RESERVE * function.rtol))
            count = count if resolved else points
        series = _Series(values, power, points, count, matrix, level, -_growth(size[:count]), resolved)
        if resolved:
            break
    if series is None:
        raise InvalidInputError(
            f"a derivative of order {degree} of a callable, whose series has {_COUNTS[-1]} terms; use a lower order"
        )
    return series


def _growth(sizes: np.ndarray[Any, Any]) -> float:
    """The power of k with which ``sizes`` grow from half of their number on; minus infinity for a few, or for zeros."""
    count = len(sizes)
    if count < 2 * _COUNTS[0]:
        return -math.inf
    half, end = (float(sizes[stop - stop // 8 : stop].max()) for stop in (count // 2, count))
    return math.log2(end / half) if half > 0.0 < end else -math.inf


def _confirmed(function: Function, host: np.ndarray[Any, Any], points: int, power: float, allowed: float) -> bool:
    """Whether f agrees with its interpolant at ``_LOOKS + 1`` further points between the Gauss points.

    Coefficients say nothing about features between all points, such as a narrow pulse on a straight line, or the tail
    of a front behind the end, which is the last of these points.
    """
    length = _length(function)
    x, there, falls = between(points, power, _LOOKS, last=True)
    at = np.minimum(function.origin + 0.5 * length * (1.0 + x), max(function.end, function.origin + 1e-3))
    values = np.concatenate([to_host(function.at(at[:-1])), function.at_end()], axis=-1)
    if power != 0.0:
        values = values * (at - function.origin) ** -power
    # As in _transform_at: f is evaluated at rounded points.
    off = ((np.asarray(at, np.longdouble) - function.origin) * 2 / np.longdouble(length) - 1 - x).astype(np.float64)
    gap = np.abs(values - host @ there - (host @ falls) * off)
    gap[..., -1] = np.nan_to_num(gap[..., -1] / AT_END)
    size = max(float(np.abs(host).max(initial=0.0)), float(np.abs(values[..., :-1]).max(initial=0.0)))
    return bool(gap.max(initial=0.0) <= allowed * math.sqrt(2.0 * points + 1.0) * size)


def _transform_at(
    at: np.ndarray[Any, Any], origin: float, length: float, points: int, power: float
) -> np.ndarray[Any, Any]:
    """The matrix from values to coefficients, corrected for the rounding of the points.

    f was evaluated at rounded points, off by 10 eps at t = 10: for exp that is ten roundings of its value, which a
    derivative amplifies. The interpolant's own slopes give the correction.
    """
    matrix = transform(points, power)
    nodes, _ = gauss_points(points, power)
    off = (np.asarray(at, np.longdouble) - origin) * 2 / np.longdouble(length) - 1 - nodes
    return np.asarray(matrix - (slope_matrix(points, power) * off.astype(np.float64)) @ matrix)


def _length(function: Function) -> float:
    """Length of the interval; a short one suffices if only the origin itself is requested."""
    return function.end - function.origin or 1e-3


def _apply(series: _Series, function: Function, order: Order, initial_terms: bool) -> Outcome:
    distance = function.points - function.origin
    coefficients = matmul(
        series.values, constant(series.matrix[:, : series.count], series.values), backend=function.backend
    )
    parts = []
    basis: Any = None
    for start in range(0, len(distance), _CHUNK):
        basis = _basis(series, order, distance[start : start + _CHUNK], _length(function), initial_terms)
        parts.append(matmul(coefficients, constant(basis, coefficients), backend=function.backend))
    value = parts[0] if len(parts) == 1 else join(parts)
    if distance[0] == 0.0:
        value = _with_origin(value, coefficients, series, order, _length(function), initial_terms)

    def error() -> float:
        if series.looked and not initial_terms and order.ceiling > 0:
            found = to_host(series.values)
            if np.all(found == found[..., :1]):
                return 0.0  # the derivative of a constant is 0 without rounding
        some = np.unique(np.linspace(0, len(distance) - 1, min(len(distance), 200)).astype(int))
        some = some[distance[some] > 0.0]
        # The coefficients dropped as noise may be all that the derivative has.
        count = min(series.points, max(series.count, order.ceiling + 1))
        if count == series.count and len(parts) == 1:
            table = to_host(basis)[:, some]
        else:
            wider = replace(series, count=count)
            table = to_host(_basis(wider, order, distance[some], _length(function), initial_terms))
        effects = np.abs(table) * np.sqrt(2.0 * np.arange(count) + 1.0)[:, None]
        noise = float(np.sqrt((effects**2).sum(axis=0)).max(initial=0.0))
        # Coefficients of a power of t fall like a power of k, and all that were left out have an effect.
        largest = effects.max(axis=1, initial=0.0)
        fall = math.inf if series.decay > _STEEP else series.decay - max(_growth(largest), 0.0) - 1.0
        rest = float(largest[count - count // 8 :].max(initial=0.0)) * count / max(fall, _SLOWEST)
        size = np.abs(to_host(value))
        rounding = float(np.finfo(real_dtype(value)).eps) * float(np.max(size[np.isfinite(size)], initial=0.0))
        return _SAFETY * (series.level * max(noise, rest) + _SAFETY * rounding)

    what = f"{series.count} of {series.points} coefficients"
    if not series.looked:
        message = f"{what}; f is traced, so that its coefficients are unknown"
    elif series.resolved:
        message = f"{what} kept, the rest fell to rounding"
    else:
        message = f"{what}, which have not fallen to the tolerance: declare factor=, or use method='graded'"
    looked = series.looked and order.known is not None
    scale = 0.0
    if looked:
        scale = float(np.abs(to_host(series.values)).max(initial=0.0)) * _length(function) ** -float(order.known or 0.0)
    return Outcome(value, "spectral", error, series.resolved, message, function.rtol, scale, looked=looked)


def _basis(series: _Series, order: Order, distance: np.ndarray[Any, Any], length: float, initial_terms: bool) -> Any:
    """The contribution of each coefficient at each point, shape (count, points); 0 at the origin itself."""
    xp, alpha, count, power = order.xp, order.value, series.count, series.power
    safe = np.where(distance > 0.0, distance, length)
    x = 2.0 * safe / length - 1.0
    with xp.scope():
        if power != 0.0 or order.ceiling <= 0:
            table = fractional_basis(xp, -alpha, power, x, count) * xp.power(safe, power - alpha)
            return table * xp.array(distance > 0.0)
        n = order.ceiling
        mu = n - alpha
        inner = fractional_basis(xp, mu, 0.0, x, max(count - n, 1)) * xp.power(safe, mu)
        table = xp.matmul(xp.array(derivative_matrix(count, n) * (2.0 / length) ** n), inner)
        if initial_terms and not order.is_integer:
            for k in range(n):
                term = xp.rgamma(k + 1.0 - alpha) * xp.power(safe, k - alpha)
                ends = xp.array(end_derivatives(count, k) * (2.0 / length) ** k)
                table = table + ends.reshape(-1, 1) * term.reshape(1, -1)
        return order.guard(table * xp.array(distance > 0.0))


def _with_origin(
    value: Any, coefficients: Any, series: _Series, order: Order, length: float, initial_terms: bool
) -> Any:
    """``value`` with its first point, the origin itself, corrected: it is 0 except in the cases here."""
    count, power, xp = series.count, series.power, array_namespace(value)
    if power == 0.0:
        if order.is_integer and order.ceiling >= 0:
            ends = end_derivatives(count, order.ceiling) * (2.0 / length) ** order.ceiling
            return join([_combine(coefficients, ends), value[..., 1:]])
        if order.ceiling <= 0 or not initial_terms:
            return value
        return join([value_at_origin(coefficients, order, series.level), value[..., 1:]])
    if order.known is None:
        return join([value[..., :1] * math.nan, value[..., 1:]])
    exponent = power - order.known
    if exponent > 0.0:
        return value
    ends = fractional_basis(NUMPY, -order.known, power, np.array([-1.0]), count)[:, 0]
    limit = _combine(coefficients, ends)
    limit = xp.where(abs(limit) <= 100.0 * series.level * max(1.0, float(np.abs(ends).max())), limit * 0, limit)
    return join([limit if exponent == 0.0 else infinite_at_origin(limit, ONE_HALF, []), value[..., 1:]])


def _combine(coefficients: Any, factors: np.ndarray[Any, Any]) -> Any:
    return matmul(coefficients, constant(factors[:, None], coefficients))
