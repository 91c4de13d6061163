"""The Weyl derivative and integral of periodic functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack, final

from hpfracc._choices import RuleName
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import UNIFORM, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, OrderNumber, PeriodOptions
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule, RuleTable, later
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.periodic import WeylWaves, check_period, of_periodic_function


@final
@dataclass(frozen=True, slots=True)
class Weyl(FractionalOperator):
    r"""Weyl derivative of a periodic function, which has no origin.

    .. math:: D^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^\alpha\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L, \quad (i\kappa)^\alpha = |\kappa|^\alpha e^{i\,\mathrm{sgn}(\kappa)\,\pi\alpha/2}.

    Any real order: integers give ordinary derivatives, negative orders Weyl integrals of f minus its mean. It is the
    limit of the derivatives with an origin, far from the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        The length L. Samples must cover it, as ``np.linspace(0, L, n, endpoint=False)`` does; it is n times their
        spacing by default, and an explicit period is checked against that. Required for a callable, which is sampled
        over one period as finely as needed and evaluated at any points.

    Notes
    -----
    Exact to rounding on waves that the samples resolve; exponentially convergent for analytic periodic functions. A
    function that is not periodic has a jump at the end of the period, and the result includes that jump. A non-finite
    sample makes the whole row nan, because every value depends on every sample.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    alpha: OrderNumber
    method: RuleName = "auto"
    period: Any = None

    definition = "weyl"
    short_names = ("W",)
    scales = True
    who = "the Weyl derivative"
    rules = RuleTable({"spectral": later("periodic.WeylWaves")})
    grids = ("uniform",)
    unused = ("origin", "factor")

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        check_period(grid, self.period, who)
        return rule

    def _of_function(self, function: Function) -> Outcome:
        pick_rule(self, self.method, self.who, UNIFORM)
        return of_periodic_function(function, WeylWaves(), self._order(), self.period, self.who)


@function_of(Weyl, see_also="weyl_integral, marchaud, riesz")
def weyl(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions]) -> Any:
    """Weyl derivative of samples over a period, or of a periodic callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl(np.sin(3 * x), x, 0.5), np.sqrt(3) * np.sin(3 * x + np.pi / 4)))
    True
    >>> float(np.round(hf.weyl(np.sin, 0.0, 0.5, period=2 * np.pi), 12))  # sin(pi / 4)
    0.707106781187
    """


@final
@dataclass(frozen=True, slots=True)
class WeylIntegral(FractionalOperator):
    r"""Weyl integral of a periodic function without mean: the inverse of the Weyl derivative.

    .. math:: I^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^{-\alpha}\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L.

    The integral of a constant over the whole past diverges, so the mean of f is omitted. ``full_output`` reports it.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        As for :class:`Weyl`.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    alpha: OrderNumber
    method: RuleName = "auto"
    period: Any = None

    definition = "weyl"
    short_names = ("W",)
    scales = True
    who = "the Weyl integral"
    kind = "integral"
    rules = Weyl.rules
    grids = ("uniform",)
    unused = ("origin", "factor")

    def _derivative(self) -> Weyl:
        order = read_order(self.alpha)
        if order.known is not None and order.known <= 0.0:
            raise InvalidInputError(f"alpha={order.known:g} is not the order of an integral; use weyl for derivatives")
        return Weyl(-self.alpha, self.method, self.period)

    def _of_samples(self, samples: Samples) -> Outcome:
        return _without_mean(self._derivative().applied(samples, self.who))

    def _of_function(self, function: Function) -> Outcome:
        return _without_mean(self._derivative()._of_function(function))


def _without_mean(outcome: Outcome) -> Outcome:
    message = "; ".join(part for part in (outcome.message, "the mean of f is left out") if part)
    return replace(outcome, message=message, reusable=None)


@function_of(WeylIntegral, see_also="weyl, riemann_liouville_integral")
def weyl_integral(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions]) -> Any:
    """Weyl integral of samples over a period, or of a periodic callable. The mean is omitted.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl_integral(np.cos(x), x, 1.0), np.sin(x)))
    True
    """
