"""Callables that no single polynomial follows: many polynomials, on a mesh graded to where f is rough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from scipy.special import rgamma, roots_jacobi

from hpfracc.engine.execution.api import matmul
from hpfracc.errors import InvalidInputError
from hpfracc.operators._base import Outcome
from hpfracc.operators._function import Function
from hpfracc.operators._grids import to_host
from hpfracc.operators._jacobi import derivative_matrix, end_derivatives, gauss_points, transform
from hpfracc.operators._order import Order
from hpfracc.operators._values import constant, join, real_dtype

__all__ = ["differentiate_graded"]

#: Points of one panel: its polynomial has degree 15.
_POINTS = 16
#: Panels at most: a power t^0.1 at the origin takes some 500 halvings; noise takes them all.
_MOST_PANELS = 2000
#: Points of the result that are worked on together.
_CHUNK = 256

Array = np.ndarray[Any, Any]


def differentiate_graded(function: Function, order: Order, *, initial_terms: bool) -> Outcome:
    r"""The derivative of order alpha (the integral where it is negative) by piecewise polynomials.

    Panels are halved until the polynomial of degree 15 on each has converged, which grades the mesh geometrically to a
    singular origin, a kink or a jump. On each panel the n-th derivative of its polynomial is integrated against the
    kernel; where panels meet, the jumps of the lower derivatives count like initial terms:

    .. math:: D^\alpha f(t) \approx \sum_{\text{panels}} \int \frac{(t-s)^{n-\alpha-1}}{\Gamma(n-\alpha)} p^{(n)}(s)\,ds
        + \sum_{\text{joints } b} \sum_{k<n} \frac{[p^{(k)}]_b}{\Gamma(k+1-\alpha)} (t-b)^{k-\alpha}.

    For continuous f of order below 1, and for integrals, as accurate as the polynomials; of higher order only as far as
    the derivatives exist.
    """
    if not order.plain:
        raise InvalidInputError(
            "a traced order cannot be had by method='graded'; declare the singular power with factor=, or give samples"
        )
    mesh = _fit(function)
    values = function.at(mesh.nodes(function.origin))
    distance = function.points - function.origin

    def apply(points: int) -> Any:
        parts = []
        for start in range(0, len(distance), _CHUNK):
            weights = _weights(mesh, float(order.value), distance[start : start + _CHUNK], initial_terms, points)
            parts.append(matmul(values, constant(weights.T, values), backend=function.backend))
        return parts[0] if len(parts) == 1 else join(parts)

    value = apply(_POINTS)

    def error() -> float:
        """How much the last three coefficients of every panel matter, and what could not be resolved."""
        gap = np.abs(to_host(value) - to_host(apply(_POINTS - 3)))
        size = np.abs(to_host(value))
        rounding = 16.0 * float(np.finfo(real_dtype(value)).eps) * float(np.max(size[np.isfinite(size)], initial=0.0))
        return float(np.max(gap[np.isfinite(gap)], initial=0.0)) + rounding

    panels = len(mesh.left)
    message = f"{panels} panels on a graded mesh: one polynomial did not converge"
    if not mesh.resolved:
        message += f", and neither did {panels} of them; f may be noisy or discontinuous"
    return Outcome(value, "graded", error, mesh.resolved, message, function.rtol)


@dataclass(frozen=True, slots=True)
class _Mesh:
    """Panels from left to right, as distances from the origin."""

    left: Array
    right: Array
    resolved: bool

    def nodes(self, origin: float) -> Array:
        x, _ = gauss_points(_POINTS, 0.0)
        half = 0.5 * (self.right - self.left)[:, None]
        return np.asarray((origin + (self.left[:, None] + half * (1.0 + x))).reshape(-1))


def _fit(function: Function) -> _Mesh:
    length = function.end - function.origin or 1e-3
    # Every wanted point that splits nothing costs nothing; the panels need not know them.
    left, right = np.array([0.0]), np.array([length])
    done_left: list[Array] = []
    done_right: list[Array] = []
    largest, count, resolved = 0.0, 0, True
    while len(left):
        trial = _Mesh(left, right, True)
        values = to_host(function.at(trial.nodes(function.origin)))
        values = values.reshape(-1, len(left), _POINTS)
        size = np.abs(values @ transform(_POINTS, 0.0)).max(axis=0)
        largest = max(largest, float(np.abs(values).max()))
        floor = max(10.0 * float(np.finfo(real_dtype(values)).eps), 1e-4 * function.rtol) * largest
        rough = size[:, -3:].max(axis=1) > floor
        # A panel of a few roundings of its place has nothing inside.
        width = right - left
        thin = width <= 64.0 * np.finfo(float).eps * np.maximum(np.abs(function.origin + left), 1e-280)
        split = rough & ~thin
        count += len(left) + int(split.sum())
        if count > _MOST_PANELS:
            resolved, split = False, np.zeros_like(split)
        done_left.append(left[~split])
        done_right.append(right[~split])
        middle = 0.5 * (left + right)[split]
        left = np.stack([left[split], middle], axis=1).reshape(-1)
        right = np.stack([middle, right[split]], axis=1).reshape(-1)
    starts, ends = np.concatenate(done_left), np.concatenate(done_right)
    turn = np.argsort(starts)
    return _Mesh(starts[turn], ends[turn], resolved)


def _weights(mesh: _Mesh, alpha: float, distance: Array, initial_terms: bool, degree: int) -> Array:
    """What each value at each node weighs at each wanted point, shape (points, nodes), by so many coefficients."""
    n = max(math.ceil(alpha), 0)
    mu = n - alpha
    table = np.zeros((len(distance), len(mesh.left), degree))  # what each coefficient of each panel contributes
    slopes = derivative_matrix(degree, n)  # Legendre coefficients of the n-th derivative
    if mu == 0.0:
        _pointwise(table, mesh, distance, slopes, n)
    else:
        _integrate(table, mesh, distance, slopes, n, mu)
    if n > 0 and mu > 0.0:
        _add_jumps(table, mesh, distance, alpha, n, initial_terms)
    coefficients = transform(_POINTS, 0.0)[:, :degree]
    return np.asarray((table @ coefficients.T).reshape(len(distance), -1))


def _pointwise(table: Array, mesh: _Mesh, distance: Array, slopes: Array, n: int) -> None:
    """A whole order: the derivative of the panel's own polynomial."""
    where = np.clip(np.searchsorted(mesh.left, distance, side="right") - 1, 0, len(mesh.left) - 1)
    half = 0.5 * (mesh.right - mesh.left)[where]
    x = (distance - mesh.left[where]) / half - 1.0
    for row, panel in enumerate(where):
        basis = legendre.legvander(x[row : row + 1], slopes.shape[1] - 1)
        table[row, panel] = (slopes @ basis[0]) / half[row] ** n


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
    """The same for a panel that ends at t, holds it, or lies close before it."""
    reach, gap = t - a, max(t - b, 0.0)
    if gap == 0.0:
        x, w = _singular_points(mu)
        r = 0.5 * reach * (1.0 + x)
        weight = w * (0.5 * reach) ** mu
    else:
        # Away from t in intervals that double, on each of which the kernel is smooth.
        doublings = math.ceil(math.log2(reach / gap))
        edges = np.minimum(gap * 2.0 ** np.arange(doublings + 1), reach)
        x, w = gauss_points(_POINTS, 0.0)
        size = 0.5 * np.diff(edges)[:, None]
        r = (edges[:-1, None] + size * (1.0 + x)).reshape(-1)
        weight = (size * w).reshape(-1) * r ** (mu - 1.0)
    half = 0.5 * (b - a)
    basis = legendre.legvander((t - r - a) / half - 1.0, slopes.shape[1] - 1)
    return np.asarray((slopes @ (basis.T @ weight)) * rgamma(mu) / half**n)


@lru_cache(maxsize=16)
def _singular_points(mu: float) -> tuple[Array, Array]:
    """Gauss points for the weight ``(1 + x)^(mu - 1)``."""
    x, w = roots_jacobi(_POINTS, 0.0, mu - 1.0)
    return x, w


def _add_jumps(table: Array, mesh: _Mesh, distance: Array, alpha: float, n: int, initial_terms: bool) -> None:
    """The jumps of the derivatives below n where panels meet; at the origin, for Riemann-Liouville, from zero."""
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
