"""Jacobi polynomials for the spectral methods: points, transforms, derivatives, fractional integrals."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from scipy.special import roots_jacobi, roots_legendre

from hpfracc._xp import NUMPY, Namespace


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
def between(count: int, power: float, looks: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Points between the ``looks`` Gauss points, and the interpolant through ``count`` values and its slopes there.

    The points are the midpoints of all gaps, including those at the ends: ``looks + 1`` points that belong to no set of
    Gauss points. Then two matrices: ``values @ first`` is the interpolant there, ``values @ second`` its slopes.
    """
    nodes, _ = gauss_points(looks, power)
    edges = np.concatenate([[-1.0], nodes, [1.0]])
    x = 0.5 * (edges[1:] + edges[:-1])
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
