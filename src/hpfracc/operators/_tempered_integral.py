"""The tempered Riemann-Liouville integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._arrays import is_array
from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.applying import apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.tempering import read_rate, tempered_function
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.any_tempered import AnyGridTempered
from hpfracc.operators.rules.quadrature import QUADRATURES
from hpfracc.operators.rules.tempered import Tempered
from hpfracc.operators.rules.trapezoid import Trapezoid

__all__ = ["TemperedIntegral", "tempered_integral"]

_WHO = "the tempered integral"


@final
@dataclass(frozen=True, slots=True)
class TemperedIntegral(FractionalOperator):
    r"""Tempered Riemann-Liouville integral.

    .. math:: I^{\mu,\lambda} f(t) = e^{-\lambda t}\, I^\mu\big[e^{\lambda t} f(t)\big]
        = \frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} e^{-\lambda(t-s)} f(s)\,ds, \quad \mu > 0,\ \lambda \ge 0.

    Its inverse is :class:`TemperedRiemannLiouville`.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array.
    rate : float or scalar array
        The rate :math:`\lambda`, 0 or more; may be differentiable too.
    method : str
        As for :class:`RiemannLiouvilleIntegral`, with the same orders if f is also smooth on the scale of 1/rate:
        ``"simpson"`` (used by ``"auto"`` for three or more samples), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; on grids
        that are not uniform ``"trapezoid"``; for callables ``"spectral"`` or ``"graded"``.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28.
    """

    alpha: Any
    rate: Any = 1.0
    method: str = "auto"

    definition: ClassVar[str] = "tempered"
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = r"\frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} e^{-\lambda(t-s)} f(s)\,ds"
    rules: ClassVar[Any] = {
        name: Tempered(rule, integral=True) for name, rule in RiemannLiouvilleIntegral.rules.items()
    }
    any_grid_rules: ClassVar[Any] = {"trapezoid": AnyGridTempered(integral=True)}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else self.rate

    def _of_samples(self, samples: Samples) -> Outcome:
        order, rate = self._order(), read_rate(self.rate)
        rule: Any = pick_rule(self, self.method, _WHO, samples.grid)
        if self.method == "auto" and samples.n <= 2 and samples.grid.uniform:
            rule = Tempered(Trapezoid(), integral=True)
        if order.plain and order.known == 0.0:
            return Outcome(samples.values * 1, "identity")
        if rule.name in QUADRATURES:
            order = order.negated()
        return apply_rule(rule.at_rate(rate), samples, order, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        order, rate = self._order(), read_rate(self.rate)
        return tempered_function(function, order.negated(), rate, self.method, initial_terms=False)

    def _order(self) -> Order:
        order = read_order(self.alpha)
        if order.known is not None and order.known < 0.0:
            raise InvalidInputError(
                f"alpha={order.known:g}: the order of an integral must be positive; "
                f"use tempered(f, t, {-order.known:g}) for the derivative"
            )
        return order


@names_options_of(FractionalOperator.__call__)
def tempered_integral(
    f: Any, t: Any = None, alpha: Any = None, rate: Any = 1.0, *, method: str = "auto", **options: Unpack[CallOptions]
) -> Any:
    """Tempered Riemann-Liouville integral of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, rate, method
        As for :class:`TemperedIntegral`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``origin``, ``factor``, ``rtol``, ``backend`` and ``full_output``,
        as for :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The integral in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> float(np.round(hf.tempered_integral(np.ones(101), t, 1.0, rate=2.0)[-1], 6))  # (1 - exp(-2)) / 2
    0.432332
    """
    return TemperedIntegral(alpha, rate, method)(f, t, **options)
