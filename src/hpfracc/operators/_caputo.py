"""The Caputo derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack, final

from hpfracc._choices import L1Name, SideName
from hpfracc.operators._riemann_liouville import OneSidedDerivative
from hpfracc.operators.core.applying import pick_rule
from hpfracc.operators.core.base import function_of
from hpfracc.operators.core.call_types import MISSING, CaputoOptions, OrderNumber
from hpfracc.operators.core.grids import Grid
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule, RuleTable, later


@final
@dataclass(frozen=True, slots=True)
class Caputo(OneSidedDerivative):
    r"""Caputo derivative. Zero on constants, unlike Riemann-Liouville; the usual choice for initial-value problems.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f^{(n)}(s)\,ds,
        \quad n = \lceil\alpha\rceil.

    Any real order: integers give ordinary derivatives, negative orders Riemann-Liouville integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order n + 2 - alpha; used by ``"auto"``) or ``"l1"`` (order
        n + 1 - alpha), on other grids ``"l1"`` (used by ``"auto"``). On every grid ``"fast"`` (or ``"soe"``), which is
        L1 with its kernel approximated by a sum of exponentials. For callables ``"spectral"`` or ``"graded"``;
        ``"auto"`` tries the first and falls back to the second.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1. It is 1 by default, and the result is nan if that
        is wrong.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point:

        .. math:: D^\alpha_{b-} f(t) = \frac{(-1)^n}{\Gamma(n-\alpha)} \int_{t}^{b} (s-t)^{n-\alpha-1} f^{(n)}(s)\,ds.

        It is the left-sided derivative of :math:`f(b - x)` at x = b - t; for an integer order n it is :math:`(-1)^n
        f^{(n)}`.
    initial : sequence, optional
        For samples and orders above 1 that are not whole: the derivatives 1 to n - 1 of f at the origin, if they are
        known; each a number, or an array with one value for each row of samples. Without them they are fitted to the
        first n + 9 samples, by a polynomial or, where that describes them significantly better, with powers of
        :math:`t^\alpha`, as solutions of fractional equations start; for a traced order by a polynomial. Their
        uncertainty is part of the error estimate.

    Notes
    -----
    Called as ``Caputo(0.5)(f, t)``; see :meth:`FractionalOperator.__call__`. If f is not smooth enough for the order of
    the rule (for example f like :math:`t^s` at the origin), the order of accuracy is lower; give such an f as a
    callable with ``factor=s``. A derivative of samples amplifies their rounding errors by ``step**-alpha`` and more: at
    order 2.5 and a step of 1e-4 four digits are left, at order 5 none. The error estimate of ``full_output=True``
    includes this. Callables lose fewer digits.

    References
    ----------
    M. Caputo, Geophys. J. R. Astron. Soc. 13 (1967) 529-539; G. Gao, Z. Sun, H. Zhang, J. Comput. Phys. 259 (2014)
    33-50 (L1-2).
    """

    alpha: OrderNumber
    method: L1Name = "auto"
    ceiling: int | None = None
    side: SideName = "left"
    initial: Any = None

    definition = "caputo"
    short_names = ("C",)
    who = "the Caputo derivative"
    rules = RuleTable({"l1-2": later("l1.L12"), "l1": later("l1.L1Rule")})
    any_grid_rules = RuleTable({"l1": later("any_grid.PiecewiseLinear"), "fast": later("any_grid.FastPiecewiseLinear")})

    def _rule(self, order: Order, grid: Grid, who: str) -> Rule:
        rule = pick_rule(self, self.method, who, grid)
        if order.ceiling < 2 and self.initial is None:
            return rule
        from hpfracc.operators.rules.start import FittedStart, read_initial

        initial = read_initial(self.initial, order, who)
        if initial is not None and self._is_right():
            initial = tuple(one * (-1.0) ** k for k, one in enumerate(initial, 1))
        return FittedStart(rule, initial)


@function_of(Caputo, see_also="riemann_liouville, riemann_liouville_integral, variable_order, smooth_derivative")
def caputo(f: Any, t: Any = None, alpha: OrderNumber = MISSING, **options: Unpack[CaputoOptions]) -> Any:
    """Caputo derivative of samples or of a callable.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> half = hf.caputo(t, t, 0.5)  # of samples: 2 sqrt(t / pi)
    >>> bool(np.allclose(half, 2 * np.sqrt(t / np.pi)))
    True
    >>> float(np.round(hf.caputo(np.exp, 1.0, 0.5), 10))  # of a function: e erf(1)
    2.2906982523
    """
