"""The Riesz derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import UNIFORM, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, OrderNumber, PeriodOptions
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule, RuleTable, later
from hpfracc.operators.rules.periodic import RieszWaves, check_period, of_periodic_function, sampled

__all__ = ["Riesz", "riesz"]


@final
@dataclass(frozen=True, slots=True)
class Riesz(FractionalOperator):
    r"""Riesz derivative: symmetric in space, and self-adjoint.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha} = -(-\Delta)^{\alpha/2} f, \quad
        \text{of waves } -|\kappa|^\alpha e^{i\kappa x}.

    For every :math:`\alpha > 0`; the second derivative for :math:`\alpha = 2`. It equals the sum of both one-sided
    Riemann-Liouville derivatives divided by :math:`-2\cos(\pi\alpha/2)`, a formula that fails at odd orders.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"centred"`` (order 2; used by ``"auto"``) and ``"centred4"`` (order 4) are for a function on the line that is
        zero outside its samples; the order holds if the function extended by zero is smooth. ``"spectral"`` is for a
        periodic function sampled over one period, and is exact on the waves that the samples resolve.
    period : float, optional
        For ``"spectral"``: as for :class:`Weyl`.

    Notes
    -----
    A callable is sampled at the points ``t``, a uniform grid, for the centred methods; for ``"spectral"`` it is sampled
    over its period as finely as needed, and ``t`` may be any points. Every value depends on every sample, so one
    non-finite sample makes its row non-finite.

    References
    ----------
    M. D. Ortigueira, Int. J. Math. Math. Sci. 2006, 48391; C. Çelik, M. Duman, J. Comput. Phys. 231 (2012) 1743-1750.
    """

    alpha: OrderNumber
    method: str = "auto"
    period: Any = None

    definition = "riesz"
    short_names = ("R",)
    scales = True
    who = "the Riesz derivative"
    rules = RuleTable(
        {
            "centred": later("space.Centred"),
            "centred4": later("space.Centred4"),
            "spectral": later("periodic.RieszWaves"),
        }
    )
    grids = ("uniform",)
    unused = ("origin", "factor")
    instead = "for the Riesz potential use fractional_laplacian with a negative order"

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        if isinstance(rule, RieszWaves):
            check_period(grid, self.period, who)
        elif self.period is not None:
            raise InvalidInputError(f"period={self.period!r} is for method='spectral'; {rule.name!r} is not periodic")
        return rule

    def _of_function(self, function: Function) -> Outcome:
        rule = pick_rule(self, self.method, self.who, UNIFORM)
        if isinstance(rule, RieszWaves):
            return of_periodic_function(function, rule, self._order(), self.period, self.who)
        return self._of_samples(sampled(function, self.who))


@function_of(Riesz, see_also="fractional_laplacian, weyl")
def riesz(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[PeriodOptions]) -> Any:
    """Riesz derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.riesz(np.cos(2 * x), x, 1.5, method="spectral"), -(2**1.5) * np.cos(2 * x)))
    True
    >>> hf.riesz(np.array([0.0, 1.0, 4.0, 1.0, 0.0]), step=1.0, alpha=2.0)  # the second difference
    array([ 1.,  2., -6.,  2.,  1.])
    """
