"""The trapezoidal rule to a fractional power."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.operators.core.sequences import binomial_coefficients, binomials
from hpfracc.solvers.ode.fixed.starting import MultistepMethod, series_power
from hpfracc.solvers.ode.method import register_method

__all__ = ["MultistepTrapezoid"]

Array = np.ndarray[Any, Any]

#: Weights up to this one come from the recurrence, later ones from the expansion at both singularities.
_RECURRED = 512
_TERMS = 10


@register_method
@final
@dataclass(frozen=True, slots=True)
class MultistepTrapezoid(MultistepMethod):
    r"""The trapezoidal rule (Tustin's) to the power alpha, with starting weights.

    .. math:: y_n = T(t_n) + h^\alpha \Big[ \sum_{j=0}^{s} w_{n,j} f_j + \sum_{j=0}^{n} \omega_{n-j} f_j \Big], \quad
        \sum_k \omega_k \zeta^k = \Big( \tfrac12 \frac{1+\zeta}{1-\zeta} \Big)^\alpha

    Order 2 at a fixed t, for smooth solutions and for those that start with powers of :math:`t^\alpha`; the smallest
    error constant of the three multistep methods. Stable whenever the equation is, without numerical damping. Not to
    be confused with the product trapezoid (``"implicit_trapezoid"``). Orders of 0.2 or more.

    References
    ----------
    R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """

    name: ClassVar[str] = "multistep_trapezoid"
    aliases: ClassVar[tuple[str, ...]] = ("flmm_trapezoid", "tustin")
    order: ClassVar[str] = "2"

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """By ``(1 - z^2) a' = 2 alpha a``; for large indices by the expansions at both singularities."""
        twice = 2.0 * alpha
        head = [1.0, twice]
        for k in range(1, min(n, _RECURRED) - 1):
            head.append((twice * head[k] + (k - 1.0) * head[k - 1]) / (k + 1.0))
        found: Array = np.array(head[:n]) * 0.5**alpha
        if n <= _RECURRED:
            return (found,), None
        far = np.arange(_RECURRED, n, dtype=np.float64)
        smooth = _expansion(-alpha, alpha, far, binomials(NUMPY, -alpha, n)[_RECURRED:])
        bent = _expansion(alpha, -alpha, far, binomials(NUMPY, alpha, n)[_RECURRED:])
        # (1+z)^alpha / (2^alpha (1-z)^alpha): near z = 1 in powers of (1-z)/2, near z = -1 in powers of (1+z)/2.
        found = np.concatenate([found, smooth + 0.25**alpha * np.where(far % 2 == 0, 1.0, -1.0) * bent])
        return (found,), None

    def at_one(self, alpha: float, count: int) -> Array:
        """``(z coth(z/2) / 2)^alpha``."""
        return series_power(_half_coth(count), alpha)

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """``(tanh(z/2) / (2 z))^alpha``."""
        return np.asarray(0.25**alpha * series_power(_half_coth(count), -alpha))


def _expansion(power: float, other: float, k: Array, first: Array) -> Array:
    """Coefficients of ``x^power (1 - x/2)^other`` with x = 1 - z, from those of ``x^power``."""
    factors = binomial_coefficients(NUMPY, other, _TERMS) * (-0.5) ** np.arange(_TERMS)
    total = np.zeros_like(k)
    for j in range(_TERMS - 1, 0, -1):
        total = (total + factors[j]) * (power + j) / (power + j - k)
    return np.asarray(first * (1.0 + total))


@functools.cache
def _half_coth(count: int) -> Array:
    """Coefficients of ``(z/2) coth(z/2)``."""
    cosh = np.array([0.5**k / math.factorial(k) if k % 2 == 0 else 0.0 for k in range(count)])
    sinh = np.array([0.5**k / math.factorial(k + 1) if k % 2 == 0 else 0.0 for k in range(count)])
    return np.convolve(cosh, series_power(sinh, -1.0))[:count]
