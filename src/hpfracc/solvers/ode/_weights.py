"""Weights of the product rules, for each order that occurs, made once and kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.operators.core.sequences import power_differences, second_differences, tangent_defects
from hpfracc.operators.core.weights import kept_weights

__all__ = ["kept", "rectangle_weights", "trapezoid_weights"]

Array = np.ndarray[Any, Any]


def kept(scheme: Hashable, alpha: float, n: int, make: Callable[[float, int], tuple[Array, ...]]) -> tuple[Array, ...]:
    """``make(alpha, n)`` for step 1, kept under its name and read-only."""

    def make_constant() -> tuple[Array, ...]:
        arrays = make(alpha, n)
        for array in arrays:
            array.setflags(write=False)
        return arrays

    found: tuple[Array, ...] = kept_weights.get(("ode", scheme, alpha, n), make_constant)
    return found


def rectangle_weights(alpha: float, n: int) -> Array:
    r"""``(k+1)^alpha - k^alpha`` over :math:`\Gamma(\alpha+1)`, k = 0 .. n-1."""
    (weights,) = kept("rectangle", alpha, n, _make_rectangle)
    return weights


def trapezoid_weights(alpha: float, n: int) -> tuple[Array, Array]:
    r"""Those of the product trapezoid over :math:`\Gamma(\alpha+2)`, and what the first value gets besides."""
    weights, first = kept("trapezoid", alpha, n, _make_trapezoid)
    return weights, first


def _make_rectangle(alpha: float, n: int) -> tuple[Array]:
    return (power_differences(NUMPY, alpha, n) * NUMPY.rgamma(alpha + 1.0),)


def _make_trapezoid(alpha: float, n: int) -> tuple[Array, Array]:
    scale = NUMPY.rgamma(alpha + 2.0)
    first = -tangent_defects(NUMPY, alpha + 1.0, n)
    first[0] = 0.0  # at the origin the integral is zero, whatever the first value
    return second_differences(NUMPY, alpha + 1.0, n) * scale, first * scale
