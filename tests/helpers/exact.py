"""Fractional derivatives known in closed form, from mpmath, which shares no code with the library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np

__all__ = ["caputo_of_exponential", "of_exponential", "of_polynomial", "of_power"]

Array = np.ndarray[Any, Any]


def of_power(p: float, alpha: float, t: Array) -> Array:
    """``D^alpha t^p = Gamma(p+1) / Gamma(p+1-alpha) t^(p-alpha)``; the integral for negative alpha."""
    factor = float(mpmath.gamma(p + 1) * mpmath.rgamma(mpmath.mpf(p + 1) - alpha))
    return factor * np.asarray(t, dtype=float) ** (p - alpha)


def of_polynomial(coefficients: Sequence[float], alpha: float, t: Array, lowest: int = 0) -> Array:
    """The Riemann-Liouville derivative of ``sum_k c_k t^k``; with ``lowest = ceil(alpha)``, Caputo's."""
    terms = [c * of_power(k, alpha, t) for k, c in enumerate(coefficients) if k >= lowest]
    return np.asarray(sum(terms, np.zeros_like(t)))


def of_exponential(rate: complex, alpha: float, t: Array) -> Array:
    """The Riemann-Liouville derivative of ``exp(rate t)``: ``t^-alpha E_{1,1-alpha}(rate t)``."""
    return np.array([complex(mpmath.power(x, -alpha) * _regularised(1 - alpha, rate * x)) for x in t])


def caputo_of_exponential(rate: complex, alpha: float, t: Array) -> Array:
    """``rate^n t^(n-alpha) E_{1,n+1-alpha}(rate t)``."""
    n = math.ceil(alpha)
    with mpmath.workdps(40):
        power = mpmath.mpc(rate) ** n
        return np.array(
            [complex(power * mpmath.power(x, n - alpha) * _regularised(n + 1 - alpha, rate * x)) for x in t]
        )


def _regularised(b: float, z: complex) -> Any:
    """``E_{1,b}(z) = 1F1(1; b; z) / Gamma(b)``, summed as its series where b is a pole of Gamma."""
    with mpmath.workdps(40):
        return (
            mpmath.nsum(lambda k: mpmath.mpc(z) ** int(k) * mpmath.rgamma(mpmath.mpf(b) + int(k)), [0, mpmath.inf])
            if float(b).is_integer() and b <= 0
            else mpmath.hyp1f1(1, b, z) * mpmath.rgamma(b)
        )
