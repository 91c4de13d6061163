"""The tempered Riemann-Liouville derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, final

from hpfracc._arrays import is_array
from hpfracc._signatures import names_options_of
from hpfracc._xp import NUMPY, namespace_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators._riemann_liouville import RiemannLiouville
from hpfracc.operators.core.applying import apply_rule, order_beside, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.tempering import read_rate, tempered_function
from hpfracc.operators.core.values import Samples, scalar
from hpfracc.operators.rules.any_slopes import differences_on
from hpfracc.operators.rules.any_tempered import AnyGridTempered
from hpfracc.operators.rules.tempered import Tempered

__all__ = ["TemperedRiemannLiouville", "read_positive_order", "tempered", "whole_order"]

_WHO = "the tempered derivative"


@final
@dataclass(frozen=True, slots=True)
class TemperedRiemannLiouville(FractionalOperator):
    r"""Tempered Riemann-Liouville derivative: a power-law kernel with exponential decay (tempered Lévy flights).

    .. math:: D^{\alpha,\lambda} f(t) = e^{-\lambda t}\, D^\alpha\big[e^{\lambda t} f(t)\big], \quad \lambda \ge 0,

    where :math:`D^\alpha` is the Riemann-Liouville derivative. With ``centred=True`` its value on constants on the
    whole line is subtracted,

    .. math:: \partial^{\alpha,\lambda} f = D^{\alpha,\lambda} f - \lambda^\alpha f \quad (0 < \alpha < 1), \qquad
        D^{\alpha,\lambda} f - \lambda^\alpha f - \alpha\lambda^{\alpha-1} f' \quad (1 < \alpha < 2),

    whose symbol :math:`(\lambda+ik)^\alpha - \lambda^\alpha - \dots` vanishes at k = 0. The first maps
    :math:`e^{-\lambda t} t^p` to :math:`\Gamma(p+1)/\Gamma(p+1-\alpha)\, e^{-\lambda t} t^{p-\alpha}`. Neither is zero
    on constants; at the origin both are infinite unless f vanishes there.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array. Integer orders are :math:`(d/dt +
        \lambda)^n`.
    rate : float or scalar array
        The rate :math:`\lambda`, 0 or more; may be differentiable too.
    centred : bool
        Whether to subtract the terms above; for orders below 2.
    method : str
        As for :class:`RiemannLiouville`, with the same orders if f is also smooth on the scale of 1/rate: ``"l1-2"``
        (n + 2 - alpha; used by ``"auto"``), ``"l1"`` (n + 1 - alpha), ``"cq2"`` to ``"cq6"``; on any other grid
        ``"l1"`` (orders below 1); for callables ``"spectral"`` or ``"graded"``.
    ceiling : int, optional
        The integer n, needed only if ``alpha`` is traced and above 1.

    References
    ----------
    F. Sabzikar, M. M. Meerschaert, J. Chen, J. Comput. Phys. 293 (2015) 14-28; B. Baeumer, M. M. Meerschaert, J.
    Comput. Appl. Math. 233 (2010) 2438-2448.
    """

    alpha: Any
    rate: Any = 1.0
    centred: bool = False
    method: str = "auto"
    ceiling: int | None = None

    definition: ClassVar[str] = "tempered"
    short_names: ClassVar[tuple[str, ...]] = ("tempered_riemann_liouville", "TRL")
    formula: ClassVar[str] = r"e^{-\lambda t}\, D^\alpha\big[e^{\lambda t} f(t)\big]"
    rules: ClassVar[Any] = {name: Tempered(rule, singular=True) for name, rule in RiemannLiouville.rules.items()}
    any_grid_rules: ClassVar[Any] = {"l1": AnyGridTempered(initial_term=True)}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _order_like(self) -> Any:
        return self.alpha if is_array(self.alpha) else self.rate

    def _of_samples(self, samples: Samples) -> Outcome:
        order, rate = self._read()
        rule: Any = pick_rule(self, self.method, _WHO, samples.grid)
        if order.is_integer:
            outcome = whole_order(samples, order, rate, _WHO)
        else:
            outcome = apply_rule(rule.at_rate(rate), samples, order, _WHO)
        if not self.centred:
            return outcome
        order = order_beside(order, samples.values)
        less = samples.values * scalar(_power(rate, order, 0), samples.values)
        if order.ceiling == 2:
            slope = apply_rule(differences_on(samples.grid), samples, read_order(1.0), _WHO).value
            less = less + slope * scalar(_power(rate, order, 1), samples.values)
        return replace(outcome, value=outcome.value - less)

    def _of_function(self, function: Function) -> Outcome:
        order, rate = self._read()
        outcome = tempered_function(function, order, rate, self.method, initial_terms=True)
        if not self.centred:
            return outcome
        values = function.at(function.points)
        less = values * scalar(_power(rate, order, 0), values)
        if order.ceiling == 2:
            slope = differentiate(function, read_order(1.0), "auto", initial_terms=False).value
            less = less + slope * scalar(_power(rate, order, 1), values)
        return replace(outcome, value=outcome.value - less)

    def _read(self) -> tuple[Order, Any]:
        order = read_positive_order(self.alpha, self.ceiling, _WHO)
        if self.centred and order.ceiling > 2:
            raise InvalidInputError(
                f"alpha={self.alpha}: the centred tempered derivative is defined for 0 < alpha <= 2; use centred=False"
            )
        return order, read_rate(self.rate)


def _power(rate: Any, order: Order, p: int) -> Any:
    """``binom(alpha, p) rate^(alpha - p)`` for p = 0 or 1."""
    xp = order.xp if not order.plain else namespace_of(rate)
    factor = 1.0 if p == 0 else order.value
    if xp is NUMPY:
        return factor * float(rate) ** float(order.value - p)
    with xp.scope():
        return factor * xp.array(rate) ** (order.value - p)


def read_positive_order(alpha: Any, ceiling: int | None, who: str) -> Order:
    """Read an order, which must be positive."""
    order = read_order(alpha, ceiling=ceiling)
    if order.known is not None and order.known <= 0.0:
        raise InvalidInputError(
            f"alpha={order.known:g}: the order of {who} must be positive; for an integral use tempered_integral"
        )
    return order


def whole_order(samples: Samples, order: Order, rate: Any, who: str) -> Outcome:
    """``(d/dt + rate)^n f`` by differences."""
    n, decay = order.ceiling, scalar(rate, samples.values)
    terms = [
        math.comb(n, p)
        * decay ** (n - p)
        * apply_rule(differences_on(samples.grid), samples, read_order(float(p)), who).value
        for p in range(n + 1)
    ]
    return Outcome(sum(terms[1:], terms[0]), "differences")


@names_options_of(FractionalOperator.__call__)
def tempered(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    rate: Any = 1.0,
    *,
    centred: bool = False,
    method: str = "auto",
    ceiling: int | None = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Tempered Riemann-Liouville derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, rate, centred, method, ceiling
        As for :class:`TemperedRiemannLiouville`.
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
    >>> t = np.linspace(0.0, 1000.0, 5)
    >>> bool(np.isfinite(hf.tempered(np.sin(t), t, 0.5, rate=10.0)).all())  # exp(rate t) itself would be infinite
    True
    >>> far = hf.tempered(np.cos, 100.0, 0.5, rate=2.0)  # far from the origin: Re (2 + i)^0.5 exp(100 i)
    >>> bool(np.isclose(far, ((2 + 1j) ** 0.5 * np.exp(100j)).real))
    True
    """
    return TemperedRiemannLiouville(alpha, rate, centred, method, ceiling)(f, t, **options)
