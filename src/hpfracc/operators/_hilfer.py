"""The Hilfer derivative, between those of Riemann-Liouville and Caputo."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Unpack, final

import numpy as np
from scipy.special import rgamma

from hpfracc._arrays import to_host
from hpfracc._choices import CqName
from hpfracc._reading import number
from hpfracc._xp import array_namespace
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators._caputo_fabrizio import read_memory_order
from hpfracc.operators._riemann_liouville import OneSidedDerivative, RiemannLiouville
from hpfracc.operators.core.base import function_of
from hpfracc.operators.core.call_types import MISSING, MethodOptions, OrderNumber
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import constant, real_dtype

#: A power counts as the one that the derivative maps to 0 up to this distance.
_SAME = 1e-12
#: Distances from the origin, relative to the interval, from which the coefficient of that power is extrapolated.
_NEAR = 1e-5
#: Rounding errors of the result relative to the terms that cancel, in units of eps.
_ROUNDED = 64.0


@final
@dataclass(frozen=True, slots=True)
class Hilfer(OneSidedDerivative):
    r"""Hilfer derivative of order alpha and type beta: Riemann-Liouville for beta = 0, Caputo for beta = 1.

    .. math:: D^{\alpha,\beta} f = I^{\beta(1-\alpha)} \frac{d}{dt} I^{(1-\beta)(1-\alpha)} f
        = D^\alpha_{RL} \Big[f - \frac{(I^{1-\gamma} f)(t_0)}{\Gamma(\gamma)} (t-t_0)^{\gamma-1}\Big],
        \quad \gamma = \alpha + \beta(1-\alpha),\ 0 < \alpha \le 1,\ 0 \le \beta \le 1.

    The initial value is that of the integral of order :math:`1-\gamma`, which is 0 for every f that is bounded at the
    origin if beta < 1. So on such functions, and on samples, it *is* the Riemann-Liouville derivative for every
    beta < 1, and Caputo's for beta = 1. The types differ on functions that start like :math:`t^{\gamma-1}`, as
    solutions of equations with this derivative do: it maps this power to 0, and :math:`t^p` with :math:`p > \gamma-1`
    to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\,t^{p-\alpha}`. Lower powers have no derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1 (1 is the ordinary derivative); differentiable if it is a tensor or JAX array. Above
        order 1 the definition needs f and its lower derivatives to vanish at the origin, unless beta is 0 or 1.
    beta : float
        The type, from 0 to 1.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order 3 - alpha; used by ``"auto"``) or ``"l1"`` (2 - alpha), and for
        beta below 1 ``"cq2"`` to ``"cq6"``; on other grids ``"l1"`` or ``"fast"``; for callables ``"spectral"`` or
        ``"graded"``. They are those of :class:`RiemannLiouville`, or of :class:`Caputo` for beta = 1.

    Notes
    -----
    A callable that is infinite at the origin needs ``factor=``, its power there: ``factor=gamma - 1`` for a solution of
    an equation.

    References
    ----------
    R. Hilfer, in *Applications of Fractional Calculus in Physics*, 2000, 87-130; R. Hilfer, Y. Luchko, Z. Tomovski,
    Fract. Calc. Appl. Anal. 12 (2009) 299-318.
    """

    alpha: OrderNumber
    beta: float = 0.0
    method: CqName = "auto"

    definition = "hilfer"
    who = "the Hilfer derivative"
    inner = RiemannLiouville

    def __post_init__(self) -> None:
        number("beta", self.beta, least=0.0, most=1.0)

    def _order(self) -> Order:
        return read_memory_order(self.alpha, self.who)

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        method: Any = self.method  # Caputo refuses those that only Riemann-Liouville has
        kind = Caputo if self.beta == 1.0 else RiemannLiouville
        return kind(self.alpha, method)._rule(order, grid, who)

    def _of_function(self, function: Function) -> Outcome:
        order, power, start = self._order(), function.factor, function.origin
        lowest = None if order.known is None else (1.0 - self.beta) * (order.known - 1.0)
        if power >= 0.0:
            with np.errstate(all="ignore"):
                function.at(np.array([start]))  # infinite values there need their power
        elif lowest is None or power < lowest - _SAME:
            raise InvalidInputError(
                f"factor={power:g}: {self.who} exists for powers from gamma - 1 on, gamma = alpha + beta (1 - alpha), "
                f"here {'an unknown number' if lowest is None else f'{lowest:.6g}'}"
            )
        outcome = differentiate(function, order, self.method, initial_terms=self.beta < 1.0)
        known = order.known
        if power >= 0.0 or lowest is None or known is None or power > lowest + _SAME:
            return outcome
        # The power that is mapped to 0, extrapolated to the origin; what is left of it alone is rounding.
        near = _NEAR * (function.end - start) * np.array([1.0, 2.0, 3.0])
        values, reach = function.at(start + near), function.points - start
        first = (values * constant(near**-power * np.array([3.0, -3.0, 1.0]), values)).sum(-1)[..., None]
        size = math.gamma(power + 1.0) * rgamma(power + 1.0 - known)
        term = first * constant(size * np.where(reach > 0.0, reach, math.inf) ** (power - known), values)
        eps = _ROUNDED * float(np.finfo(real_dtype(values)).eps)
        less = outcome.value - term
        less = array_namespace(less).where(abs(less) <= eps * abs(term), 0.0 * less, less)
        error, scale = outcome.error, max(outcome.scale, float(np.abs(to_host(term)).max(initial=0.0)))
        return replace(outcome, value=less, error=error and (lambda: error() + eps * scale), scale=scale)


@function_of(Hilfer, see_also="riemann_liouville, caputo")
def hilfer(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, beta: float = 0.0, **options: Unpack[MethodOptions[CqName]]
) -> Any:
    """Hilfer derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> value = hf.hilfer(lambda t: (1 + t) * t**-0.25, 1.0, 0.5, 0.5, factor=-0.25)  # gamma = 3/4: t^-0.25 to 0
    >>> float(np.round(value, 10))  # of t^0.75: Gamma(1.75) / Gamma(1.25)
    1.0139673601
    """
