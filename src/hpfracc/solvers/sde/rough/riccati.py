r"""The fractional Riccati equation :math:`D^a h = c + b h + g h^2`, :math:`h(0) = 0`, for many coefficients at once.

Chebyshev collocation in the variable :math:`z = t^a`. The solution is a power series in ``z``, so it is smooth there
although it is not in ``t``, and 24 to 60 points give 8 to 12 digits. The Riemann-Liouville integral of a polynomial in
``z`` becomes one matrix, which depends only on ``a`` and the number of points and is cached. Each Newton iteration
solves one small dense system per coefficient.

Not for equations whose solution blows up within the interval: collocation does not converge then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from hpfracc.errors import SolveError
from hpfracc.solvers.sde.rough.model import curve_values, integral_rule

#: Points of the successive solutions. The difference of two solutions is the error estimate of the first.
_POINTS = (24, 36, 54, 81, 122)
_MAX_ITERATIONS = 40
#: Step of the central differences of the matrices in the order.
_STEP = 3e-5

#: Weights of an integral over ``[0, T]`` at the collocation points, from the order, T and the degree.
Measure = Callable[[float, float, int], np.ndarray]


class RiccatiSolution(NamedTuple):
    r"""Integrals of the solution over ``[0, T]`` with the measure :math:`\mu`, each of shape ``(coefficients,)``.

    Attributes
    ----------
    integral : ndarray
        :math:`\int_0^T h\,d\mu`.
    right_side : ndarray
        :math:`\int_0^T (c + b h + g h^2)\,d\mu`; with the plain measure it equals :math:`I^{1-a} h(T)`.
    error : ndarray
        Estimate of the absolute error of ``weights @ (integral, right_side)``.
    slopes : dict of ndarray
        Derivatives of that combination with respect to ``"b"``, ``"g"``, ``"a"`` and ``"T"``; empty if not asked for.
    """

    integral: np.ndarray
    right_side: np.ndarray
    error: np.ndarray
    slopes: dict[str, np.ndarray]


class _Collocation(NamedTuple):
    """Points ``z`` in [0, 1], the integral of order ``a``, and the weights of the plain integral over t in [0, 1]."""

    z: np.ndarray
    to_coefficients: np.ndarray
    fractional_integral: np.ndarray
    integral: np.ndarray


def _chebyshev(z: np.ndarray, degree: int) -> np.ndarray:
    """Chebyshev polynomials of degree 0 to ``degree``, shifted to [0, 1], along a new last axis."""
    return chebyshev.chebvander(2.0 * z - 1.0, degree)


@lru_cache(maxsize=64)
def _collocate(a: float, degree: int) -> _Collocation:
    # With s = t r and z = t^a: (I^a f)(t) = z / Gamma(a) int_0^1 (1 - r)^(a-1) p(z r^a) dr for f(t) = p(t^a).
    z = 0.5 * (1.0 - np.cos(np.pi * np.arange(degree + 1) / degree))
    to_coefficients = np.linalg.inv(_chebyshev(z, degree))
    # r in [1/2, 1], where (1 - r)^(a-1) is singular; 1 - r = (1 - x) / 4.
    x, upper_weights = special.roots_jacobi(2 * degree, a - 1.0, 0.0)
    upper = ((3.0 + x) / 4.0) ** a
    upper_weights = upper_weights * 0.25**a
    # r in [0, 1/2], where r^a is: y = r^a is the variable, and dr = y^(1/a-1) / a dy.
    x, lower_weights = special.roots_jacobi(2 * degree, 0.0, 1.0 / a - 1.0)
    lower = 0.5**a * (1.0 + x) / 2.0
    lower_weights = lower_weights * (0.5**a / 2.0) ** (1.0 / a) / a * (1.0 - lower ** (1.0 / a)) ** (a - 1.0)
    where = np.concatenate([upper, lower])
    weights = np.concatenate([upper_weights, lower_weights]) / special.gamma(a)
    moments = weights @ _chebyshev(z[:, None] * where, degree)
    fractional = z[:, None] * moments @ to_coefficients
    # The plain integral of p(t^a): dt = z^(1/a-1) / a dz.
    x, plain_weights = special.roots_jacobi(degree + 2, 0.0, 1.0 / a - 1.0)
    plain = (plain_weights * 0.5 ** (1.0 / a) / a) @ _chebyshev((1.0 + x) / 2.0, degree) @ to_coefficients
    return _Collocation(z, to_coefficients, fractional, plain)


def plain_measure(a: float, T: float, degree: int) -> np.ndarray:
    """Weights of the plain integral."""
    return np.asarray(T * _collocate(a, degree).integral)


def curve_measure(curve: Any) -> Measure:
    r"""Weights of :math:`\int_0^T f(t)\,\xi(T-t)\,dt` for a forward variance :math:`\xi`."""

    def measure(a: float, T: float, degree: int) -> np.ndarray:
        before, weights = integral_rule(curve, T)
        z = np.maximum(1.0 - before / T, 0.0) ** a
        values = (weights * curve_values(curve, before)) @ _chebyshev(z, degree)
        return np.asarray(values @ _collocate(a, degree).to_coefficients)

    return measure


def solve_riccati(
    c: np.ndarray,
    b: np.ndarray,
    g: float,
    a: float,
    T: float,
    *,
    weights: tuple[float, float],
    atol: float,
    measure: Measure = plain_measure,
    slopes: bool = False,
) -> RiccatiSolution:
    """Solve :math:`D^a h = c + b h + g h^2` on ``[0, T]`` from ``h(0) = 0``.

    Parameters
    ----------
    c, b : ndarray, shape (coefficients,)
        Complex coefficients.
    g : float
        Coefficient of the square, at least 0.
    a : float
        Order, above 0 and at most 1.
    T : float
        End of the interval.
    weights : (float, float)
        The combination of the two integrals that must be accurate.
    atol : float
        Absolute error of that combination where its real part is at least -40; below, its exponential is 0.
    measure : callable
        The measure of the integrals.
    slopes : bool
        Whether to differentiate the combination, by one more linear system per coefficient.
    """
    scale = T**a
    points = _collocate(a, _POINTS[0])
    h = _first_guess(c, b, g, a, scale * points.z)
    todo = np.arange(c.size)
    integrals = np.zeros((2, c.size), complex)
    error = np.full(c.size, np.inf)
    found = {name: np.zeros(c.size, complex) for name in ("b", "g", "a", "T")} if slopes else {}
    for level, degree in enumerate(_POINTS):
        if level:
            finer = _collocate(a, degree)
            h = h @ (_chebyshev(finer.z, points.z.size - 1) @ points.to_coefficients).T
            points = finer
        matrix = scale * points.fractional_integral
        h = _newton(h, matrix, c[todo], b[todo], g)
        right_side = c[todo, None] + b[todo, None] * h + g * h * h
        density = measure(a, T, degree)
        new = np.stack([h @ density, right_side @ density])
        finished = np.full(todo.size, degree == _POINTS[-1])
        if level:
            change = np.abs(np.tensordot(weights, new - integrals[:, todo], 1))
            error[todo] = change
            matters = np.tensordot(weights, new, 1).real > -40.0
            finished |= (change <= atol) | ~matters
        integrals[:, todo] = new
        if slopes and finished.any():
            parts = h[finished], right_side[finished], b[todo[finished]]
            for name, values in _slopes(*parts, g, a, T, weights, measure, degree).items():
                found[name][todo[finished]] = values
        h, todo = h[~finished], todo[~finished]
        if not todo.size:
            break
    return RiccatiSolution(integrals[0], integrals[1], error, found)


def _slopes(
    h: np.ndarray,
    right_side: np.ndarray,
    b: np.ndarray,
    g: float,
    a: float,
    T: float,
    weights: tuple[float, float],
    measure: Measure,
    degree: int,
) -> dict[str, np.ndarray]:
    r"""Derivatives of the combination of both integrals, by the transposed linear system.

    With :math:`h = M R` and the gradient G of the combination in h, :math:`\lambda = (1 - M R'(h))^{-T} G` gives the
    effect of any change of M, and :math:`M^T \lambda` that of any change of R.
    """
    scale = T**a
    fractional = _collocate(a, degree).fractional_integral
    density = measure(a, T, degree)
    inner = b[:, None] + 2.0 * g * h
    transposed = np.eye(degree + 1) - inner[:, :, None] * (scale * fractional.T)
    gradient = density * (weights[0] + weights[1] * inner)
    adjoint = np.linalg.solve(transposed, gradient[..., None])[..., 0]
    of_right_side = scale * adjoint @ fractional + weights[1] * density
    of_scale = np.vecdot(adjoint.conj(), right_side @ fractional.T)
    turned = _derivative(lambda order: _collocate(order, degree).fractional_integral, a, _STEP)
    combined = weights[0] * h + weights[1] * right_side
    return {
        "b": np.vecdot(of_right_side.conj(), h),
        "g": np.vecdot(of_right_side.conj(), h * h),
        "a": scale * (math.log(T) * of_scale + np.vecdot(adjoint.conj(), right_side @ turned.T))
        + combined @ _derivative(lambda order: measure(order, T, degree), a, _STEP),
        "T": a * scale / T * of_scale + combined @ _derivative(lambda end: measure(a, end, degree), T, _STEP * T),
    }


def _derivative(function: Callable[[float], np.ndarray], x: float, step: float) -> np.ndarray:
    """A central difference."""
    return np.asarray((function(x + step) - function(x - step)) / (2.0 * step))


def _first_guess(c: np.ndarray, b: np.ndarray, g: float, a: float, z: np.ndarray) -> np.ndarray:
    """A function with the right slope in z = t^a at 0 and the right limit at infinity, the stable root."""
    root = np.sqrt(b * b - 4.0 * g * c)
    rate = 0.5 * (np.where(root.real < 0.0, -root, root) - b)
    slope = z / special.gamma(a + 1.0)
    guess: np.ndarray = c[:, None] * slope / (1.0 + rate[:, None] * slope)
    return guess


def _newton(h: np.ndarray, matrix: np.ndarray, c: np.ndarray, b: np.ndarray, g: float) -> np.ndarray:
    """Solve ``h = matrix @ (c + b h + g h^2)`` for each coefficient, from the values given."""
    identity = np.eye(matrix.shape[0])
    c, b = c[:, None], b[:, None]
    for _ in range(_MAX_ITERATIONS):
        residual = h - (c + b * h + g * h * h) @ matrix.T
        jacobian = identity - matrix * (b + 2.0 * g * h)[:, None, :]
        change = np.linalg.solve(jacobian, residual[..., None])[..., 0]
        h = h - change
        # Newton's method squares the error, so the next change would be at rounding.
        if np.all(np.abs(change) <= 1e-8 * (1.0 + np.abs(h).max(axis=1, keepdims=True))):
            return h
    raise SolveError(
        f"the fractional Riccati equation was not solved: Newton's method did not converge in {_MAX_ITERATIONS} "
        "iterations; the transform may not exist for these parameters. Use a smaller sigma, or a rho farther from -1 "
        "and 1"
    )
