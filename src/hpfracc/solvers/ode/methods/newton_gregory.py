"""Fractional Newton-Gregory formula of second order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.operators.core.sequences import binomials
from hpfracc.solvers.ode.fixed.starting import MultistepMethod, series_power
from hpfracc.solvers.ode.method import register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem

__all__ = ["NewtonGregory"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class NewtonGregory(MultistepMethod):
    r"""The Grünwald sum with its first correction and starting weights.

    .. math:: y_n = T(t_n) + h^\alpha \Big[ \sum_{j=0}^{s} w_{n,j} f_j + \sum_{j=0}^{n} \omega_{n-j} f_j \Big], \quad
        \sum_k \omega_k \zeta^k = (1-\zeta)^{-\alpha} \Big( 1 - \tfrac{\alpha}{2} (1-\zeta) \Big)

    Order 2 at a fixed t, for smooth solutions and for those that start with powers of :math:`t^\alpha`. For stiff
    equations; at alpha = 1 it is the trapezoidal rule. Orders from 0.2 to below 2, where the weight of the newest value
    vanishes.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719; R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """

    name: ClassVar[str] = "newton_gregory"
    aliases: ClassVar[tuple[str, ...]] = ("flmm_ng2", "ng2")
    order: ClassVar[str] = "2"

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires constant orders from 0.2 to below 2, and few enough powers of t."""
        known = problem.orders.known
        if known is not None and float(known.max()) >= 2.0:
            highest = float(known.max())
            return f"method={self.name!r} needs orders below 2, and the highest is {highest:g}; use method='bdf2'"
        return MultistepMethod.refuses(self, problem, options)

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """Coefficients of the generating function."""
        return (binomials(xp, -alpha, n) - 0.5 * alpha * binomials(xp, 1.0 - alpha, n),), None

    def at_one(self, alpha: float, count: int) -> Array:
        """With ``u = 1 - e^-z`` it is ``(u/z)^-alpha (1 - alpha u / 2)``."""
        rise = np.array([0.0, *((-1.0) ** (k + 1) / math.factorial(k) for k in range(1, count + 1))])
        correction = -0.5 * alpha * rise[:count]
        correction[0] += 1.0
        return np.convolve(series_power(rise[1:], -alpha), correction)[:count]
