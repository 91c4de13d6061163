"""Integrals of powers against a decaying exponential over one step."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

__all__ = ["exponential_moments"]

Array = np.ndarray[Any, Any]

#: Below this the integrand is smooth enough for the quadrature, above it the recurrence does not lose digits.
_SWITCH = 12.0
_POINTS, _WEIGHTS = special.roots_legendre(20)
_POINTS, _WEIGHTS = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS


def exponential_moments(z: Array, count: int) -> Array:
    r""":math:`M_q(z) = \int_0^1 x^q e^{-zx} dx` for ``z >= 0`` and q = 0 .. count - 1, shape (len(z), count).

    Gauss-Legendre for small z; for z of 12 and more the recurrence :math:`M_q = (q M_{q-1} - e^{-z}) / z`, whose
    errors shrink as long as q < z: ``count`` may be 12 at most.
    """
    if count == 1:
        return np.where(z > 1e-300, -np.expm1(-z) / np.maximum(z, 1e-300), 1.0)[:, np.newaxis]
    moments = np.empty((z.size, count))
    small = z <= _SWITCH
    powers = _POINTS[:, np.newaxis] ** np.arange(count) * _WEIGHTS[:, np.newaxis]
    moments[small] = np.exp(-np.outer(z[small], _POINTS)) @ powers
    large = z[~small]
    if large.size:
        decayed = np.exp(-large)
        column = -np.expm1(-large) / large
        moments[~small, 0] = column
        for q in range(1, count):
            column = (q * column - decayed) / large
            moments[~small, q] = column
    return moments
