"""How an input that is spread over a step arrives in a decaying state, in any array namespace.

``arrival(z) = int_0^1 u^p exp(-z (1 - u)) du``: what is left, at the end of a step over which the exponent fell by
``z``, of an input spread over it like ``u^p``. It is ``p!`` times the phi-function of order ``p + 1`` at ``-z`` of
exponential integrators.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["MOST_DEGREE", "arrival"]

#: The highest degree: the recursion below loses a digit more with each.
MOST_DEGREE = 4
#: Terms of the series, for ``|z| < 1``: the last one left out is below 1e-17.
_TERMS = 18


def arrival(xp: Any, z: Any, degree: int | None, *, smooth: bool = True) -> Any:
    """The factor above at every ``z``, 1 where the input arrives at the end of the step (``degree`` None).

    A power series for ``|z| < 1``, the recursion ``b_p = (1 - p b_{p-1}) / z`` beyond: both keep their digits, and so
    do their derivatives, which ``expm1(-z) / z`` near 0 does not; that one, six times as quick, is taken where
    ``smooth`` says that nobody differentiates.
    """
    if degree is None:
        return xp.ones_like(z)
    if degree == 0 and not smooth:
        still = z == 0.0
        return xp.where(still, 1.0, -xp.expm1(-z) / xp.where(still, 1.0, z))
    small = abs(z) < 1.0
    near = xp.where(small, z, 0.0)
    total = 0.0 * near + _coefficient(degree, _TERMS - 1)
    for k in range(_TERMS - 2, -1, -1):
        total = total * near + _coefficient(degree, k)
    far = xp.where(small, 1.0, z)
    beyond = -xp.expm1(-far) / far
    for p in range(1, degree + 1):
        beyond = (1.0 - p * beyond) / far
    return xp.where(small, total, beyond)


def _coefficient(degree: int, k: int) -> float:
    return (-1.0) ** k * math.factorial(degree) / math.factorial(degree + k + 1)
