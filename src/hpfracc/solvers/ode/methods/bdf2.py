"""Fractional BDF2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import Namespace
from hpfracc.operators.rules.quadrature import multistep_weights
from hpfracc.solvers.ode.fixed.starting import MultistepMethod, series_power
from hpfracc.solvers.ode.method import register_method

__all__ = ["BDF2"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class BDF2(MultistepMethod):
    r"""The second-order backward differentiation formula to the power -alpha, with starting weights.

    .. math:: y_n = T(t_n) + h^\alpha \Big[ \sum_{j=0}^{s} w_{n,j} f_j + \sum_{j=0}^{n} \omega_{n-j} f_j \Big], \quad
        \sum_k \omega_k \zeta^k = \Big( \tfrac32 - 2\zeta + \tfrac12 \zeta^2 \Big)^{-\alpha}

    Order 2 at a fixed t, for smooth solutions and for those that start with powers of :math:`t^\alpha`, on which
    the starting weights are exact. Strongly damped, for stiff equations. Orders of 0.2 or more.

    References
    ----------
    C. Lubich, SIAM J. Math. Anal. 17 (1986) 704-719; R. Garrappa, Math. Comput. Simul. 110 (2015) 96-112.
    """

    name: ClassVar[str] = "bdf2"
    aliases: ClassVar[tuple[str, ...]] = ("flmm_bdf2", "fbdf2")
    order: ClassVar[str] = "2"

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """Coefficients of the generating function."""
        return (multistep_weights(xp, -alpha, n, 2),), None

    def at_one(self, alpha: float, count: int) -> Array:
        """With ``u = 1 - e^-z`` it is ``((u + u^2/2) / z)^-alpha``."""
        decay = np.array([(-1.0) ** k / math.factorial(k) for k in range(count + 2)])
        rise = -decay
        rise[0] = 0.0
        symbol = rise + 0.5 * np.convolve(rise, rise)[: count + 2]
        return series_power(symbol[1 : count + 1], -alpha)
