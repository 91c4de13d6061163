"""The Caputo derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import FAST, apply_rule, pick_rule, streamed_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator, operator_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.any_l1 import AnyGridL1, FastL1
from hpfracc.operators.rules.any_slopes import differences_on
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.l12 import L12

__all__ = ["Caputo", "caputo"]


@final
@dataclass(frozen=True, slots=True)
class Caputo(FractionalOperator):
    r"""Caputo derivative: zero on constants, unlike Riemann-Liouville; start here for initial-value problems.

    .. math:: D^\alpha f(t) = \frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f^{(n)}(s)\,ds,
        \quad n = \lceil\alpha\rceil.

    Any order: whole ones are ordinary derivatives, negative ones Riemann-Liouville integrals.

    Parameters
    ----------
    alpha : float or scalar array
        The order; a tensor or JAX array carries its derivative.
    method : str
        For samples on a uniform grid ``"l1-2"`` (order n + 2 - alpha; what ``"auto"`` takes) or ``"l1"`` (order
        n + 1 - alpha), on any other ``"l1"`` (what ``"auto"`` takes); on every grid ``"fast"`` (or ``"soe"``), which is
        L1 with its memory as a sum of exponentials; for callables ``"spectral"`` or ``"graded"``, ``"auto"`` trying the
        first and falling to the second.
    ceiling : int, optional
        The integer n, needed only where ``alpha`` is traced and lies above 1; 1 is taken if it is not given, and the
        result is nan where that is wrong.
    side : {"left", "right"}
        From the origin up to t, as above, or from t up to an end b, the last point unless ``origin=`` says otherwise:

        .. math:: D^\alpha_{b-} f(t) = \frac{(-1)^n}{\Gamma(n-\alpha)} \int_{t}^{b} (s-t)^{n-\alpha-1} f^{(n)}(s)\,ds.

        It is the left-sided derivative of :math:`f(b - x)` at x = b - t; that of whole order n is
        :math:`(-1)^n f^{(n)}`.

    Notes
    -----
    Called as ``Caputo(0.5)(f, t)``; see :meth:`FractionalOperator.__call__`. On a grid that is not smooth enough for
    the order of its rule (f like :math:`t^s` at the origin) the order falls; give such an f as a callable with
    ``factor=s``. A derivative of samples magnifies their rounding by ``step**-alpha`` and more: at order 2.5 and a step
    of 1e-4 four digits are left, at order 5 none. ``full_output=True`` counts that among the error; a callable keeps
    more.
    """

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None
    side: str = "left"

    definition: ClassVar[str] = "caputo"
    short_names: ClassVar[tuple[str, ...]] = ("C",)
    formula: ClassVar[str] = r"\frac{1}{\Gamma(n-\alpha)} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f^{(n)}(s)\,ds"
    rules: ClassVar[Any] = {"l1-2": L12(), "l1": L1Rule()}
    any_grid_rules: ClassVar[Any] = {"l1": AnyGridL1(), "fast": FastL1()}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        return self.applied(samples, "the Caputo derivative")

    def applied(self, samples: Samples, who: str) -> Outcome:
        """To samples, for an operator that errors are to call ``who``."""
        order = read_order(self.alpha, ceiling=self.ceiling)
        rule = pick_rule(self, self.method, who, samples.grid)
        if order.known is not None and order.known < 0.0:
            return RiemannLiouvilleIntegral(-self.alpha, "fast" if self.method in FAST else "auto").applied(
                samples, who
            )
        if order.is_integer:
            rule = differences_on(samples.grid)
        return apply_rule(rule, samples, order, who)

    def _streamed(self) -> tuple[Rule, Order]:
        order = read_order(self.alpha, ceiling=self.ceiling)
        if order.known is not None and order.known < 0.0:
            return RiemannLiouvilleIntegral(-self.alpha)._streamed()
        return streamed_rule(self, self.method, "the Caputo derivative", order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_order(self.alpha, ceiling=self.ceiling)
        return differentiate(function, order, self.method, initial_terms=False)


@names_options_of(FractionalOperator.__call__)
def caputo(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    side: str = "left",
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo derivative of samples or of a callable.

    ``alpha``, ``method``, ``ceiling`` and ``side`` are those of :class:`Caputo`; the ``options`` (``step``, ``axis``,
    ``origin``, ``factor``, ``rtol``, ``backend``, ``full_output``) those of its call.

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
    return operator_of(Caputo, alpha, method, ceiling, side)(f, t, **options)
