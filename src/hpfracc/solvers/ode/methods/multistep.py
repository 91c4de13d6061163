"""Fractional powers of linear multistep methods."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from hpfracc._xp import NUMPY, Namespace
from hpfracc.operators.core.sequences import binomials
from hpfracc.operators.rules.quadrature import multistep_weights
from hpfracc.solvers.ode.fixed.scheme import Evaluate, Tableau, cached_weights
from hpfracc.solvers.ode.fixed.solve import StepMethod
from hpfracc.solvers.ode.fixed.starting import refuse_start, start_together
from hpfracc.solvers.ode.method import register_method
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: The lowest order for which the starting weights can be computed in double precision.
_MIN_ORDER = 0.2


@dataclass(frozen=True, slots=True)
class MultistepMethod(StepMethod):
    """A fractional power of a linear multistep method: implicit, with starting weights, for NumPy."""

    libraries: ClassVar[frozenset[str]] = frozenset({"numpy"})
    takes: ClassVar[frozenset[str]] = StepMethod.takes | {"infinite"}
    implicit: ClassVar[bool] = True

    def refuses(self, problem: Problem, options: Options) -> str | None:
        """Requires orders of 0.2 or more, and few enough powers of t."""
        refusal = StepMethod.refuses(self, problem, options)
        if refusal is not None or problem.orders.known is None:
            return refusal
        lowest = float(problem.orders.known.min())
        if lowest >= _MIN_ORDER:
            return refuse_start(self.name, problem, options)
        needs = f"needs orders of {_MIN_ORDER} or more for its starting weights, and the lowest is {lowest:g}"
        return f"method={self.name!r} {needs}; use method='implicit_trapezoid'"

    def promised_order(self, alpha: float, *, rough: bool = False) -> float:
        """2, by the starting weights for rough solutions too."""
        return 2.0

    def start(self, table: Tableau, evaluate: Evaluate, options: Options) -> None:
        """Solve the first steps together."""
        start_together(self, table, evaluate, options)

    def weights(self, xp: Namespace, alpha: Any, n: int) -> tuple[tuple[Any, ...], Any]:
        """Coefficients of the generating function, cached."""
        return cached_weights(self.name, alpha, n, self.coefficients), None

    @abc.abstractmethod
    def coefficients(self, alpha: float, n: int) -> tuple[Array]:
        """Coefficients of the generating function."""

    @abc.abstractmethod
    def factor(self, alpha: float) -> tuple[float, float]:
        r"""C and e of the generating function :math:`u^{-\alpha} (1 + c u)^e`, with :math:`u = 1 - \zeta`."""

    def at_one(self, alpha: float, count: int) -> Array:
        """Coefficients of ``omega(e^-z) z^alpha`` in powers of z."""
        rise = np.array([(-1.0) ** k / math.factorial(k + 1) for k in range(count)])  # of u/z
        c, e = self.factor(alpha)
        inner = np.array([1.0, *(c * rise[:-1])])
        return np.convolve(_series_power(rise, -alpha), _series_power(inner, e))[:count]

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """Coefficients of ``omega(-e^-z) z^-alpha`` if omega is not smooth at -1; otherwise None."""
        return None


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

    def coefficients(self, alpha: float, n: int) -> tuple[Array]:
        """Of the square of a backward difference."""
        return (multistep_weights(NUMPY, -alpha, n, 2),)

    def factor(self, alpha: float) -> tuple[float, float]:
        """Of ``(u + u^2/2)^-alpha``."""
        return 0.5, -alpha


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

    def coefficients(self, alpha: float, n: int) -> tuple[Array]:
        """Binomial coefficients."""
        return (binomials(NUMPY, -alpha, n) - 0.5 * alpha * binomials(NUMPY, 1.0 - alpha, n),)

    def factor(self, alpha: float) -> tuple[float, float]:
        """Of ``u^-alpha (1 - alpha u / 2)``."""
        return -0.5 * alpha, 1.0


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

    def coefficients(self, alpha: float, n: int) -> tuple[Array]:
        """By ``(1 - z^2) a' = 2 alpha a``; the relative error of the millionth is below 1e-13."""
        twice = 2.0 * alpha
        head = [1.0, twice]
        for k in range(1, n - 1):
            head.append((twice * head[k] + (k - 1.0) * head[k - 1]) / (k + 1.0))
        return (np.array(head[:n]) * 0.5**alpha,)

    def factor(self, alpha: float) -> tuple[float, float]:
        """Of ``((1 - u/2) / u)^alpha``."""
        return -0.5, alpha

    def at_minus_one(self, alpha: float, count: int) -> Array | None:
        """``(tanh(z/2) / (2 z))^alpha``, where the function at 1 is ``(z coth(z/2) / 2)^alpha``."""
        return np.asarray(0.25**alpha * _series_power(self.at_one(alpha, count), -1.0))


def _series_power(series: Array, exponent: float) -> Array:
    """Coefficients of ``(a_0 + a_1 z + ...)^exponent`` for a_0 > 0, as many as in ``series``."""
    given = series.tolist()  # few numbers, faster outside of arrays
    found = [given[0] ** exponent]
    for m in range(1, len(given)):
        total = 0.0
        for j in range(1, m + 1):
            total += (exponent * j - (m - j)) * given[j] * found[m - j]
        found.append(total / (m * given[0]))
    return np.array(found)
