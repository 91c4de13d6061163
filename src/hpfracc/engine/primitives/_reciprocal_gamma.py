"""``1/Gamma`` and its derivatives along an arithmetic progression, with exact arguments."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy import special

from hpfracc.errors import InvalidInputError

__all__ = ["MOST_DERIVATIVES", "reciprocal_gammas"]

#: Derivatives of 1/Gamma that are written out below.
MOST_DERIVATIVES = 2


def reciprocal_gammas(alpha: float, beta: float, count: int, derivative: int = 0) -> np.ndarray:
    """A derivative of ``1/Gamma`` at ``beta + alpha k`` for k < count.

    With exact arguments: near a zero half an ulp of the argument is all the digits.
    """
    if not 0 <= derivative <= MOST_DERIVATIVES:
        raise InvalidInputError(
            f"derivative {derivative} of the Mittag-Leffler function in its parameters; there are those up to "
            f"{MOST_DERIVATIVES}: differentiate it less often in alpha and beta"
        )
    values = np.empty(count)
    argument, increment = Fraction(beta), Fraction(alpha)
    for k in range(count):
        nearest, x = round(argument), float(argument)
        if nearest > 0:
            values[k] = _on_the_right(x, derivative)
        else:
            values[k] = _by_reflection(x, float(argument - nearest), derivative) * (-1.0 if nearest % 2 else 1.0)
        argument += increment
    return values


def _on_the_right(x: float, derivative: int) -> float:
    value = float(special.rgamma(x))
    if derivative == 0:
        return value
    psi = float(special.psi(x))
    return -psi * value if derivative == 1 else (psi * psi - float(special.polygamma(1, x))) * value


def _by_reflection(x: float, distance: float, derivative: int) -> float:
    """``1/Gamma(x) = sin(pi x) Gamma(1 - x) / pi``, with ``distance`` from the nearest whole number, sign left out."""
    sine, cosine = math.sin(math.pi * distance), math.cos(math.pi * distance)
    size = math.gamma(1.0 - x)
    if derivative == 0:
        return sine / math.pi * size
    psi = float(special.psi(1.0 - x))
    if derivative == 1:
        return size * (cosine - sine / math.pi * psi)
    square = psi * psi + float(special.polygamma(1, 1.0 - x))
    return size * (-math.pi * sine - 2.0 * cosine * psi + sine / math.pi * square)
