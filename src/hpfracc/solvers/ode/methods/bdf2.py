"""Fractional BDF2."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import NUMPY
from hpfracc.operators.rules.quadrature import multistep_weights
from hpfracc.solvers.ode.fixed.multistep import refuse_multistep, series_power, solve_multistep
from hpfracc.solvers.ode.method import Method, register_method
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["BDF2"]

Array = np.ndarray[Any, Any]


@register_method
@final
@dataclass(frozen=True, slots=True)
class BDF2(Method):
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
    implicit: ClassVar[bool] = True

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires constant orders of 0.2 or more, and few enough powers of t."""
        return refuse_multistep(self, problem, options)

    def solve(self, problem: Problem, options: Options) -> FODEResult:
        """Solve the first steps together and the others one by one."""
        return solve_multistep(self, problem, options)

    def weights(self, alpha: float, n: int) -> Array:
        """Coefficients of the generating function."""
        return np.asarray(multistep_weights(NUMPY, -alpha, n, 2))

    def at_one(self, alpha: float, count: int) -> Array:
        """With ``u = 1 - e^-z`` it is ``((u + u^2/2) / z)^-alpha``."""
        decay = np.array([(-1.0) ** k / math.factorial(k) for k in range(count + 2)])
        rise = -decay
        rise[0] = 0.0
        symbol = rise + 0.5 * np.convolve(rise, rise)[: count + 2]
        return series_power(symbol[1 : count + 1], -alpha)

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """Smooth at -1."""
        return None
