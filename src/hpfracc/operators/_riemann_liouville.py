"""The Riemann-Liouville derivative and integral, and the derivative of Grunwald and Letnikov."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc._choices import CqName, GlName, IntegralName, SideName
from hpfracc.operators.core.applying import apply_beside_whole, derivative_of_whole_order, pick_rule
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MISSING, OneSidedOptions, OrderNumber, SideOptions
from hpfracc.operators.core.function import FAST, Function
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import QUADRATURES, Rule, RuleTable, later
from hpfracc.operators.core.values import Samples


class OneSidedDerivative(FractionalOperator, ABC):
    """Derivatives with a power-law kernel: those of negative order are integrals, those of integer order ordinary."""

    __slots__ = ()

    streams = True
    scales = True

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        rule = self._rule(order, samples.grid, who)
        # The rules have no term that depends on an order of 0: its gradient is that of the integral.
        learns_at_zero = order.known == 0.0 and not order.plain
        if learns_at_zero or (order.known is not None and order.known < 0.0):
            integral = RiemannLiouvilleIntegral(-self.alpha, "fast" if self.method in FAST else "auto")
            return integral.applied(samples, who)
        n = order.ceiling
        return apply_beside_whole(rule, samples, order, who, lambda some: derivative_of_whole_order(some, n, who), at=n)

    def _streamed(self) -> tuple[Rule, Order]:
        order = self._order()
        if order.known is not None and order.known < 0.0:
            return RiemannLiouvilleIntegral(-self.alpha)._streamed()
        return FractionalOperator._streamed(self)


@final
@dataclass(frozen=True, slots=True)
class RiemannLiouville(OneSidedDerivative):
    r"""Riemann-Liouville derivative. Not zero on constants, and infinite at the origin unless f vanishes there.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \frac{d^n}{dt^n} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f(s)\,ds,
        \quad n = \lceil\alpha\rceil.

    Any real order: integers give ordinary derivatives, negative orders Riemann-Liouville integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``), ``"l1"`` (n + 1 - alpha),
        both with the initial terms added, or ``"cq2"`` to ``"cq6"``, convolution quadrature of that order; on other
        grids ``"l1"`` or ``"fast"``, as for :class:`Caputo`; for callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1; see :class:`Caputo`.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point:

        .. math:: D^\alpha_{b-} f(t) = \frac{(-1)^n}{\Gamma(n-\alpha)} \frac{d^n}{dt^n} \int_{t}^{b}
            (s-t)^{n-\alpha-1} f(s)\,ds.

        It is the left-sided derivative of :math:`f(b - x)` at x = b - t; for an integer order n it is :math:`(-1)^n
        f^{(n)}`.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 2; C. Lubich, SIAM
    J. Math. Anal. 17 (1986) 704-719 (convolution quadrature).
    """

    alpha: OrderNumber
    method: CqName = "auto"
    ceiling: int | None = None
    side: SideName = "left"

    definition = "riemann_liouville"
    short_names = ("RL",)
    who = "the Riemann-Liouville derivative"
    initial_terms = True
    rules = RuleTable(
        {
            "l1-2": later("start.WithInitialTerms", later("l1.L12")),
            "l1": later("start.WithInitialTerms", later("l1.L1Rule")),
            **QUADRATURES,
        }
    )
    any_grid_rules = RuleTable(
        {
            "l1": later("start.WithInitialTerms", later("any_grid.PiecewiseLinear")),
            "fast": later("start.WithInitialTerms", later("any_grid.FastPiecewiseLinear")),
        }
    )


@function_of(RiemannLiouville, see_also="caputo, grunwald_letnikov, riemann_liouville_integral")
def riemann_liouville(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[OneSidedOptions[CqName]]
) -> Any:
    """Riemann-Liouville derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.riemann_liouville(np.ones(5), t, 0.5)[1:].round(4)  # of a constant: 1 / sqrt(pi t)
    array([1.1284, 0.7979, 0.6515, 0.5642])
    """


class RepeatedIntegral(FractionalOperator, ABC):
    """Integrals by the rules of Riemann-Liouville's."""

    __slots__ = ()

    kind = "integral"

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        rule = self._rule(order, samples.grid, who)
        order = order.negated() if rule.name in QUADRATURES else order
        return apply_beside_whole(rule, samples, order, who, lambda some: Outcome(some.values * 1, "identity"), at=0)

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        short = self.method == "auto" and grid.n <= 2 and grid.uniform
        return pick_rule(self, "trapezoid" if short else self.method, who, grid)


@final
@dataclass(frozen=True, slots=True)
class RiemannLiouvilleIntegral(RepeatedIntegral):
    r"""Riemann-Liouville integral: the repeated integral, generalised to any positive order.

    .. math:: I^\mu f(t) = \frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} f(s)\,ds, \quad \mu > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array, at 0 with the one-sided
        derivative.
    method : str
        For samples on a uniform grid ``"simpson"`` (order 3 + alpha, at most 4; used by ``"auto"`` for three or more
        samples), ``"trapezoid"`` (order 2) or ``"cq2"`` to ``"cq6"``, convolution quadrature of that order; on other
        grids ``"trapezoid"`` (used by ``"auto"``) or ``"fast"`` (``"soe"``), the same rule with its kernel approximated
        by a sum of exponentials; for callables ``"spectral"`` or ``"graded"``.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point:

        .. math:: I^\mu_{b-} f(t) = \frac{1}{\Gamma(\mu)} \int_{t}^{b} (s-t)^{\mu-1} f(s)\,ds.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 2.
    """

    alpha: OrderNumber
    method: IntegralName = "auto"
    side: SideName = "left"

    definition = "riemann_liouville"
    short_names = ("RL",)
    who = "the Riemann-Liouville integral"
    instead = "use riemann_liouville for the derivative"
    streams = True
    scales = True
    rules = RuleTable({"simpson": later("product.Simpson"), "trapezoid": later("product.Trapezoid"), **QUADRATURES})
    any_grid_rules = RuleTable(
        {
            "trapezoid": later("any_grid.PiecewiseLinear", integral=True),
            "fast": later("any_grid.FastPiecewiseLinear", integral=True),
        }
    )

    def _of_function(self, function: Function) -> Outcome:
        from hpfracc.operators.core.spectral import differentiate

        return differentiate(function, self._order().negated(), self.method, initial_terms=False)


@function_of(RiemannLiouvilleIntegral, see_also="riemann_liouville, hadamard_integral, tempered_integral")
def riemann_liouville_integral(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[SideOptions[IntegralName]]
) -> Any:
    """Riemann-Liouville integral of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> bool(np.allclose(hf.riemann_liouville_integral(np.ones(101), t, 0.5), 2 * np.sqrt(t / np.pi)))
    True
    """


@final
@dataclass(frozen=True, slots=True)
class GrunwaldLetnikov(FractionalOperator):
    r"""Grünwald-Letnikov derivative: the limit of difference quotients, equal to Riemann-Liouville for smooth f.

    .. math:: D^\alpha f(t) = \lim_{h \to 0} h^{-\alpha} \sum_{j=0}^{(t-t_0)/h} (-1)^j \binom{\alpha}{j} f(t - jh).

    Any real order: integers give ordinary derivatives, negative orders integrals. Not zero on constants, unlike the
    Caputo derivative.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        For samples on a uniform grid ``"gl"`` (order 1; used by ``"auto"``) or ``"wsgl"`` (order 2 if f vanishes at the
        origin, else 1); for callables ``"spectral"`` or ``"graded"``, which compute the limit.
    ceiling : int, optional
        The order rounded up, for callables with a traced order above 1.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point: the limit of :math:`h^{-\alpha} \sum_{j=0}^{(b-t)/h} (-1)^j \binom{\alpha}{j} f(t + jh)`.
        Integer orders n are :math:`(-1)^n f^{(n)}`.

    Notes
    -----
    For samples the value is the sum itself, with h the step. At a fixed t its error is O(h). At the first points, a
    fixed number of steps from the origin, the error is as large as the value for every step; use
    :func:`riemann_liouville` there, which is accurate from the first point on.

    References
    ----------
    I. Podlubny, *Fractional Differential Equations*, 1999, section 2.2; W. Tian, H. Zhou, W. Deng, Math. Comp. 84
    (2015) 1703-1727 (WSGL).
    """

    alpha: OrderNumber
    method: GlName = "auto"
    ceiling: int | None = None
    side: SideName = "left"

    definition = "grunwald_letnikov"
    short_names = ("GL",)
    who = "the Grünwald-Letnikov derivative"
    rules = RuleTable({"gl": later("quadrature.Grunwald"), "wsgl": later("quadrature.WeightedGrunwald")})
    grids = ("uniform",)
    streams = True
    scales = True
    initial_terms = True


@function_of(GrunwaldLetnikov, see_also="riemann_liouville, marchaud, fractional_difference")
def grunwald_letnikov(
    f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[OneSidedOptions[GlName]]
) -> Any:
    """Grünwald-Letnikov derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> hf.grunwald_letnikov(np.array([0.0, 1.0, 4.0, 9.0]), step=1.0, alpha=1.0)  # backward differences
    array([0., 1., 3., 5.])
    """
