"""Callables that a single polynomial cannot approximate: piecewise polynomials on a mesh graded to where f is rough.

Before them what the spectral methods share: Jacobi polynomials, their points, transforms, derivatives and integrals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from scipy.special import rgamma, roots_jacobi, roots_legendre

from hpfracc._arrays import to_host
from hpfracc._xp import NUMPY, Namespace, array_namespace
from hpfracc.engine.execution.api import matmul
from hpfracc.errors import DivergenceError, InvalidInputError
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import constant, join, real_dtype
from hpfracc.operators.rules.first_points import infinite_at_origin


@lru_cache(maxsize=32)
def gauss_points(count: int, power: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Gauss points and weights on [-1, 1] for the weight ``(1 + x)^power``."""
    points, weights = roots_legendre(count) if power == 0.0 else roots_jacobi(count, 0.0, power)
    return points, weights


@lru_cache(maxsize=32)
def transform(count: int, power: float) -> np.ndarray[Any, Any]:
    """The matrix from values at the Gauss points to coefficients of P^(0, power): ``c = values @ matrix``.

    By solving a linear system; quadrature would treat the rounded points as exact.
    """
    points, _ = gauss_points(count, power)
    return np.asarray(np.linalg.inv(np.stack(_recurrence(NUMPY, 0.0, power, power, points, count))))


@lru_cache(maxsize=32)
def slope_matrix(count: int, power: float) -> np.ndarray[Any, Any]:
    """The matrix from values at the Gauss points to the interpolant's slopes there: ``slopes = values @ matrix``."""
    points, _ = gauss_points(count, power)
    return np.asarray(transform(count, power) @ _slopes(count, power, points))


def _slopes(count: int, power: float, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Slopes of ``P_0 .. P_(count-1)`` at x, with parameters 0 and b: ``P_k' = (k + b + 1) / 2 P_(k-1)^(1,b+1)``."""
    lower = _recurrence(NUMPY, 1.0, power + 1.0, power + 2.0, x, max(count - 1, 1))
    return np.stack([0.0 * x] + [0.5 * (k + power + 1.0) * lower[k - 1] for k in range(1, count)])


@lru_cache(maxsize=32)
def between(count: int, power: float, looks: int, *, last: bool = False) -> tuple[np.ndarray[Any, Any], ...]:
    """Points between the ``looks`` Gauss points, and the interpolant through ``count`` values and its slopes there.

    The points are the midpoints of all gaps, including those at the ends: ``looks + 1`` points that belong to no set of
    Gauss points; ``last`` puts the last of them at the end. Then two matrices: ``values @ first`` is the interpolant
    there, ``values @ second`` its slopes.
    """
    nodes, _ = gauss_points(looks, power)
    edges = np.concatenate([[-1.0], nodes, [1.0]])
    x = np.append(0.5 * (edges[1:-1] + edges[:-2]), 1.0 if last else 0.5 * (edges[-1] + edges[-2]))
    rows = np.stack(_recurrence(NUMPY, 0.0, power, power, x, count))
    matrix = transform(count, power)
    return x, np.asarray(matrix @ rows), np.asarray(matrix @ _slopes(count, power, x))


def derivative_matrix(count: int, times: int) -> np.ndarray[Any, Any]:
    """The matrix from ``count`` Legendre coefficients to those of the derivative: ``c' = c @ matrix``."""
    return np.eye(count) if times == 0 else np.asarray(legendre.legder(np.eye(count), times, axis=1))


def end_derivatives(count: int, times: int) -> np.ndarray[Any, Any]:
    """The derivatives of the first ``count`` Legendre polynomials at -1."""
    matrix = derivative_matrix(count, times)
    return np.asarray(matrix @ (-1.0) ** np.arange(matrix.shape[1]))


def _recurrence(xp: Namespace, a: Any, b: Any, total: float, x: Any, count: int) -> list[Any]:
    """``P_0 .. P_(count-1)`` with parameters a, b whose sum is ``total``, at x."""
    one = 0.0 * x + 1.0
    table = [one]
    if count > 1:
        table.append((a + 1.0) * one + (total + 2.0) * (x - 1.0) / 2.0)
    for k in range(2, count):
        top = 2.0 * k + total
        scale = 2.0 * k * (k + total) * (top - 2.0)
        linear = (top - 1.0) * (top * (top - 2.0) * x + (a - b) * total)
        table.append((linear * table[-1] - 2.0 * (k + a - 1.0) * (k + b - 1.0) * top * table[-2]) / scale)
    return table


def fractional_basis(xp: Namespace, mu: Any, power: float, x: np.ndarray[Any, Any], count: int) -> Any:
    r"""``(1+x)^(-power-mu) I^mu [(1+x)^power P_k^(0,power)](x)`` for k below ``count``, shape (count, points).

    By Bateman's formula this is :math:`\Gamma(k+s+1)/\Gamma(k+s+1+\mu)\, P_k^{(-\mu, s+\mu)}(x)`; with a negative mu it
    is the derivative.
    """
    table = _recurrence(xp, -mu, power + mu, power, xp.array(x), count)
    rows = []
    ratio: Any = 1.0
    for k in range(count):
        # The quotient by its own recurrence once the argument is certainly positive: for smaller k it may cross a pole.
        if k < 16:
            ratio = math.gamma(k + power + 1.0) * xp.rgamma(k + power + 1.0 + mu)
        else:
            ratio = ratio * (k + power) / (k + power + mu)
        rows.append(ratio * table[k])
    return xp.stack(rows)


#: Points of one panel, and the degree of its polynomial.
_POINTS, DEGREE = 16, 15
#: Largest number of panels: a power t^0.1 at the origin takes some 500 halvings; noise takes them all.
_MAX_PANELS = 2000
#: Points of the result that are processed together.
_CHUNK = 256
#: Largest deviation of f from a polynomial between its nodes, in units of the truncation level, and at the end, as a
#: part of that: there a derivative amplifies it most.
ALIKE, AT_END = 100.0, 0.1
#: On panels narrower than this part of their distance from 0, f is singular rather than rounded.
_NARROW = 2.0**-20
#: First step, relative to the length, below which a mesh reveals how f behaves at the origin.
_DEEP = 2.0**-10
#: Coefficients above this multiple of the truncation level are significant.
_TOLD = 1e3
#: Observed errors were up to nine times the contribution of the last coefficients, as those of a power fall slowly.
_SAFETY = 4.0
#: Contributions to the integral that stay above this fraction over all those halvings do not decrease.
_FALLING = 0.9

Array = np.ndarray[Any, Any]


def integer_derivative(order: Order, initial_terms: bool) -> int:
    """The order of the derivative of the polynomials that an operator integrates; 0 for their terms at the origin."""
    return 0 if initial_terms and not order.is_integer else order.ceiling


def differentiate_graded(function: Function, order: Order, *, initial_terms: bool) -> Outcome:
    r"""The derivative of order alpha (the integral if it is negative) by piecewise polynomials.

    Panels are halved until the polynomial of degree 15 on each has converged, which grades the mesh geometrically
    towards a singular origin, a kink or a jump. On each panel the n-th derivative of its polynomial is integrated
    against the kernel; where panels meet, the jumps of the lower derivatives enter like initial terms:

    .. math:: D^\alpha f(t) \approx \sum_{\text{panels}} \int \frac{(t-s)^{n-\alpha-1}}{\Gamma(n-\alpha)} p^{(n)}(s)\,ds
        + \sum_{\text{joints } b} \sum_{k<n} \frac{[p^{(k)}]_b}{\Gamma(k+1-\alpha)} (t-b)^{k-\alpha}.

    For continuous f of order below 1, and for integrals, it is as accurate as the polynomials; at higher orders only as
    far as the derivatives exist.
    """
    if not order.plain:
        raise InvalidInputError(
            "method='graded' does not support a traced order; declare the singular power with factor=, or give samples"
        )
    if integer_derivative(order, initial_terms) > DEGREE:
        raise InvalidInputError(
            f"method='graded' with order {order.value}: its polynomials have derivatives up to order {DEGREE}; apply "
            "the operator to a derivative of f"
        )
    n = 0 if initial_terms else max(order.ceiling, 0)
    mesh, values = _fit(function)
    _refuse_divergence(mesh, function, n)
    resolved = mesh.resolved(n, 1e-4 * function.rtol)
    distance = function.points - function.origin
    parts, tails, noises = [], [], []
    for start in range(0, len(distance), _CHUNK):
        weights, tail = _weights(mesh, float(order.value), distance[start : start + _CHUNK], initial_terms)
        parts.append(matmul(values, constant(weights.T, values), backend=function.backend))
        tails.append(to_host(values) @ tail.T)
        noises.append(np.sqrt(np.abs(to_host(values)) ** 2 @ (weights**2).T))
    value = parts[0] if len(parts) == 1 else join(parts)
    if initial_terms and distance[0] == 0.0 and order.ceiling > 0 and not order.is_integer:
        singular = bool(mesh.rough[0]) or mesh.right[0] < _DEEP * mesh.right[-1]
        first = matmul(values[..., :_POINTS], constant(transform(_POINTS, 0.0), values))
        change = float(mesh.sizes[0, 1:].sum()) if singular else None
        value = join([value_at_origin(first, order, mesh.floor, change), value[..., 1:]])

    def error() -> float:
        """A multiple of the contribution of the last three coefficients of every panel, and of unresolved panels.

        Then rounding: that of the result, and that of f, which a derivative amplifies.
        """
        gap, size, noise = np.abs(np.concatenate(tails, -1)), np.abs(to_host(value)), np.concatenate(noises, -1)
        eps = float(np.finfo(real_dtype(value)).eps)
        return _SAFETY * (_largest(gap) + eps * (_largest(noise) + 4.0 * _largest(size)))

    panels = len(mesh.left)
    message = f"{panels} panels on a graded mesh: one polynomial did not converge"
    if not resolved:
        message += f", and neither did {panels} of them; f may be noisy or discontinuous"
    return Outcome(value, "graded", error, resolved, message, function.rtol)


def value_at_origin(coefficients: Any, order: Order, level: float, change: float | None = None) -> Any:
    """A Riemann-Liouville derivative at the origin itself, of a series of polynomials that begins there.

    Slopes at the ``level`` of the truncated terms count as 0. With a ``change``, that of f on a panel which ends a
    graded mesh, they are unknown, and the result is nan if they matter.
    """
    slopes = []
    for k in range(order.ceiling):
        ends = end_derivatives(coefficients.shape[-1], k)
        slope = matmul(coefficients, constant(ends[:, None], coefficients))
        doubt = 100.0 * level * max(1.0, float(np.abs(ends).max()))
        if change is not None:
            doubt = math.nan if k else max(doubt, change)
        slopes.append((array_namespace(slope).where(abs(slope) <= doubt, slope * 0, slope), abs(slope) * 0 * doubt))
    return infinite_at_origin(slopes[0][0], order, slopes[1:])


def _largest(sizes: Array) -> float:
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))


@dataclass(frozen=True, slots=True)
class _Mesh:
    """Panels from left to right, as distances from the origin, and the sizes of f's coefficients on each."""

    left: Array
    right: Array
    sizes: Array
    #: Panels whose polynomials do not approximate f, and panels too narrow to be halved.
    rough: Array
    thin: Array
    floor: float

    def shares(self, n: int) -> Array:
        """Bound of each panel's contribution to the integral of the absolute n-th derivative, up to a constant."""
        return np.asarray(self.sizes[:, n:].sum(axis=1) * (self.right - self.left) ** (1.0 - n))

    def resolved(self, n: int, allowed: float) -> bool:
        """Whether unresolved panels are so narrow that their contribution is negligible."""
        shares = self.shares(n)
        return float(shares[self.rough & ~self.thin].sum()) <= allowed * float(shares.sum())


def _places(left: Array, right: Array, x: Array, origin: float) -> Array:
    """Points ``x`` of [-1, 1] mapped to every panel, one after the other."""
    half = 0.5 * (right - left)[:, None]
    return np.asarray((origin + (left[:, None] + half * (1.0 + x))).reshape(-1))


def _fit(function: Function) -> tuple[_Mesh, Any]:
    """The panels, and f at the nodes of all of them in the caller's library."""
    length = function.end - function.origin or 1e-3
    x, _ = gauss_points(_POINTS, 0.0)
    # The points of the result do not split panels, so the mesh need not know them.
    left, right = np.array([0.0]), np.array([length])
    done: list[tuple[Array, ...]] = []
    kept: list[Any] = []
    largest, count, floor = 0.0, 0, 0.0
    while len(left):
        found = function.at(_places(left, right, x, function.origin))
        host = to_host(found).reshape(-1, len(left), _POINTS)
        size = np.abs(host @ transform(_POINTS, 0.0)).max(axis=0)
        largest = max(largest, float(np.abs(host).max()))
        floor = max(10.0 * float(np.finfo(real_dtype(host)).eps), 1e-4 * function.rtol) * largest
        width = right - left
        # f is evaluated at rounded points, which far from 0 changes it by more than its own rounding.
        far = np.maximum(abs(function.origin), right)
        slope = 2.0 / width * (size @ np.arange(_POINTS) ** 2)
        moved = np.finfo(float).eps * far * slope * (width > _NARROW * far)
        rough = size[:, -3:].max(axis=1) > floor + moved
        # A panel a few roundings wide contains no further points.
        thin = width <= 64.0 * np.finfo(float).eps * np.maximum(np.abs(function.origin + left), 1e-280)
        calm = np.flatnonzero(~rough & ~thin)
        rough[calm] = _hidden(function, left[calm], right[calm], host[:, calm], floor + moved[calm])
        split = rough & ~thin
        count += len(left) + int(split.sum())
        if count > _MAX_PANELS:
            split = np.zeros_like(split)
        done.append((left[~split], right[~split], size[~split], rough[~split], thin[~split]))
        whole = np.flatnonzero(~split)
        kept.append(found.reshape(*found.shape[:-1], len(left), _POINTS)[..., whole.tolist(), :])
        middle = 0.5 * (left + right)[split]
        left = np.stack([left[split], middle], axis=1).reshape(-1)
        right = np.stack([middle, right[split]], axis=1).reshape(-1)
    found_panels = [np.concatenate(parts) for parts in zip(*done, strict=True)]
    turn = np.argsort(found_panels[0])
    values = join([one.reshape(*one.shape[:-2], -1) for one in kept])
    values = values.reshape(*values.shape[:-1], len(turn), _POINTS)[..., turn.tolist(), :]
    left, right, sizes, rough, thin = (part[turn] for part in found_panels)
    mesh = _Mesh(left, right, sizes, rough, thin, floor)
    return mesh, values.reshape(*values.shape[:-2], -1)


def _hidden(function: Function, left: Array, right: Array, host: Array, floor: Array) -> Any:
    """Whether f deviates from a panel's polynomial between its nodes, or at the end; see the spectral method."""
    if not len(left):
        return []
    x, there, _ = between(_POINTS, 0.0, _POINTS)
    values = to_host(function.at(_places(left, right, x, function.origin))).reshape(-1, len(left), len(x))
    hidden = np.abs(values - host @ there).max(axis=(0, 2)) > ALIKE * floor
    last = int(np.argmax(right))
    if right[last] == (function.end - function.origin or 1e-3):
        at_end = (host[:, last] @ transform(_POINTS, 0.0)).sum(axis=-1)
        off = np.abs(function.at_end().reshape(-1) - at_end).max()
        hidden[last] |= bool(off > AT_END * ALIKE * floor[last])  # not where f is undefined there
    return hidden


def _refuse_divergence(mesh: _Mesh, function: Function, n: int) -> None:
    """Refuse f if its n-th derivative cannot be integrated at the origin.

    Over panels that halve towards the origin, the integral of the absolute derivative must decrease. It is the sum of
    the coefficients from n on, times the width to the power 1 - n. For Riemann-Liouville n is 0: f itself is
    integrated. At points other than the origin, which is known exactly, rounding of f hides its behaviour; there the
    error estimate reveals it.
    """
    width = mesh.right - mesh.left
    strength, share = mesh.sizes[:, n:].sum(axis=1), mesh.shares(n)
    # The halving ended because f is not approximated, or has become too small; a narrow pulse is not a singular point.
    if width[0] >= _DEEP * width.sum() or not (mesh.rough[0] or strength[0] <= _TOLD * mesh.floor):
        return
    chain = np.flatnonzero(width <= 2.0**-4 * width.sum())
    chain = chain[width[chain] >= np.maximum.accumulate(width[chain])]
    told = [panel for panel in chain[1:] if strength[panel] > _TOLD * mesh.floor and not mesh.rough[panel]]
    if len(told) < 2 or width[told[-1]] < width[told[0]] / _DEEP:
        return
    # Half of the way if that is enough: beyond it f may be anything.
    half = told[len(told) // 2]
    far = half if width[half] >= width[told[0]] / _DEEP else told[-1]
    if share[told[0]] >= _FALLING * share[far]:
        start = np.array([function.origin])
        at = float((start if function.own_to_user is None else function.own_to_user(start))[0])
        what = "f" if n == 0 else "the derivative of f" if n == 1 else f"the derivative of order {n} of f"
        raise DivergenceError(
            f"the integral diverges: {what} cannot be integrated near t={at:.6g}, where it grows too fast; "
            "move the origin, or declare a singular power there with factor="
        )


def _weights(mesh: _Mesh, alpha: float, distance: Array, initial_terms: bool) -> tuple[Array, Array]:
    """The weight of each value at each node for each point of the result, shape (points, nodes).

    Then the same for the last three coefficients of each panel alone, or for all of an unresolved panel, which
    estimates the error.
    """
    n = max(math.ceil(alpha), 0)
    mu = n - alpha
    table = np.zeros((len(distance), len(mesh.left), _POINTS))  # the contribution of each coefficient of each panel
    slopes = derivative_matrix(_POINTS, n)  # Legendre coefficients of the n-th derivative
    if mu == 0.0:
        _pointwise(table, mesh, distance, slopes, n)
    else:
        _integrate(table, mesh, distance, slopes, n, mu)
    if n > 0 and mu > 0.0:
        _add_jumps(table, mesh, distance, alpha, n, initial_terms)
    coefficients = transform(_POINTS, 0.0)
    whole = (table @ coefficients.T).reshape(len(distance), -1)
    table[:, ~(mesh.rough & ~mesh.thin), :-3] = 0.0  # nothing is certain on an unresolved panel
    last = (table @ coefficients.T).reshape(len(distance), -1)
    return np.asarray(whole), np.asarray(last)


def _pointwise(table: Array, mesh: _Mesh, distance: Array, slopes: Array, n: int) -> None:
    """An integer order: the derivative of the panel's own polynomial."""
    where = np.clip(np.searchsorted(mesh.left, distance, side="right") - 1, 0, len(mesh.left) - 1)
    half = 0.5 * (mesh.right - mesh.left)[where]
    x = (distance - mesh.left[where]) / half - 1.0
    basis = legendre.legvander(x, slopes.shape[1] - 1)
    table[np.arange(len(where)), where] = (basis @ slopes.T) / half[:, None] ** n


def _integrate(table: Array, mesh: _Mesh, distance: Array, slopes: Array, n: int, mu: float) -> None:
    """The integral of each panel's n-th derivative against ``(t - s)^(mu-1) / Gamma(mu)``."""
    left, right = mesh.left, mesh.right
    width = right - left
    x, w = gauss_points(24, 0.0)
    basis = slopes @ legendre.legvander(x, slopes.shape[1] - 1).T  # (coefficient, node)
    nodes = left[:, None] + 0.5 * width[:, None] * (1.0 + x)
    gap = distance[:, None] - right[None, :]
    far = gap >= 0.5 * width[None, :]
    scale = (2.0 / width) ** n * 0.5 * width * rgamma(mu)
    for row, t in enumerate(distance):
        panels = np.flatnonzero(far[row])
        kernel = (t - nodes[panels]) ** (mu - 1.0) * w
        table[row, panels] += (kernel @ basis.T) * scale[panels, None]
        for panel in np.flatnonzero(~far[row] & (left < t)):
            table[row, panel] += _near(t, left[panel], right[panel], slopes, n, mu)


def _near(t: float, a: float, b: float, slopes: Array, n: int, mu: float) -> Array:
    """The same for a panel that ends at t, contains it, or lies shortly before it."""
    reach, gap = t - a, max(t - b, 0.0)
    if gap == 0.0:
        # Radau's rule, with a point at t itself, which for a small mu has nearly all of the weight.
        x, w = gauss_points(_POINTS, mu)
        r = 0.5 * reach * np.append(0.0, 1.0 + x)
        inner = w / (1.0 + x) * (0.5 * reach) ** mu * rgamma(mu)
        weight = np.append(reach**mu * rgamma(mu + 1.0) - inner.sum(), inner)
    else:
        # Away from t in intervals that double, on each of which the kernel is smooth.
        doublings = math.ceil(math.log2(reach / gap))
        edges = np.minimum(gap * 2.0 ** np.arange(doublings + 1), reach)
        x, w = gauss_points(_POINTS, 0.0)
        size = 0.5 * np.diff(edges)[:, None]
        r = (edges[:-1, None] + size * (1.0 + x)).reshape(-1)
        weight = (size * w).reshape(-1) * r ** (mu - 1.0) * rgamma(mu)
    half = 0.5 * (b - a)
    basis = legendre.legvander((t - r - a) / half - 1.0, slopes.shape[1] - 1)
    return np.asarray((slopes @ (basis.T @ weight)) / half**n)


def _add_jumps(table: Array, mesh: _Mesh, distance: Array, alpha: float, n: int, initial_terms: bool) -> None:
    """Add the jumps of the derivatives below n where panels meet; at the origin, for Riemann-Liouville, from zero."""
    degree = table.shape[2]
    half = 0.5 * (mesh.right - mesh.left)
    sign = (-1.0) ** np.arange(degree)
    for k in range(n):
        start = end_derivatives(degree, k)
        end = start * sign * (-1.0) ** k
        after = distance[:, None] - mesh.left[None, :]
        beyond = after > 0.0
        term = np.where(beyond, np.where(beyond, after, 1.0) ** (k - alpha), 0.0) * rgamma(k + 1.0 - alpha)
        if not initial_terms:
            term[:, 0] = 0.0
        table += (term / half**k)[:, :, None] * start
        table[:, :-1] -= (term[:, 1:] / half[:-1] ** k)[:, :, None] * end
