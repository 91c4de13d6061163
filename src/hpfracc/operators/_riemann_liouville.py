"""The Riemann-Liouville derivative."""

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
from hpfracc.operators.rules.any_initial import AnyGridInitialTerms
from hpfracc.operators.rules.any_l1 import AnyGridL1, FastL1
from hpfracc.operators.rules.any_slopes import differences_on
from hpfracc.operators.rules.initial import WithInitialTerms
from hpfracc.operators.rules.l1 import L1Rule
from hpfracc.operators.rules.l12 import L12
from hpfracc.operators.rules.quadrature import QUADRATURES

__all__ = ["RiemannLiouville", "riemann_liouville"]


@final
@dataclass(frozen=True, slots=True)
class RiemannLiouville(FractionalOperator):
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
        ``"left"`` integrates from the origin to t, as above; ``"right"`` from t to an end b, which is ``origin=`` or
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

    alpha: Any
    method: str = "auto"
    ceiling: int | None = None
    side: str = "left"

    definition: ClassVar[str] = "riemann_liouville"
    short_names: ClassVar[tuple[str, ...]] = ("RL",)
    formula: ClassVar[str] = r"\frac{1}{\Gamma(n-\alpha)} \frac{d^n}{dt^n} \int_{t_0}^{t} (t-s)^{n-\alpha-1} f(s)\,ds"
    rules: ClassVar[Any] = {"l1-2": WithInitialTerms(L12()), "l1": WithInitialTerms(L1Rule()), **QUADRATURES}
    any_grid_rules: ClassVar[Any] = {"l1": AnyGridInitialTerms(AnyGridL1()), "fast": AnyGridInitialTerms(FastL1())}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        return self.applied(samples, "the Riemann-Liouville derivative")

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
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
        return streamed_rule(self, self.method, "the Riemann-Liouville derivative", order)

    def _of_function(self, function: Function) -> Outcome:
        order = read_order(self.alpha, ceiling=self.ceiling)
        return differentiate(function, order, self.method, initial_terms=True)


@names_options_of(FractionalOperator.__call__)
def riemann_liouville(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    ceiling: int | None = None,
    side: str = "left",
    **options: Unpack[CallOptions],
) -> Any:
    """Riemann-Liouville derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, ceiling, side
        As for :class:`RiemannLiouville`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``origin``, ``factor``, ``rtol``, ``backend`` and ``full_output``,
        as for :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The derivative in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.riemann_liouville(np.ones(5), t, 0.5)[1:].round(4)  # of a constant: 1 / sqrt(pi t)
    array([1.1284, 0.7979, 0.6515, 0.5642])
    """
    return operator_of(RiemannLiouville, alpha, method, ceiling, side)(f, t, **options)
