"""The Caputo-Fabrizio integral."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import normalised, read_memory_order
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples, scalar

__all__ = ["CaputoFabrizioIntegral", "caputo_fabrizio_integral"]

_WHO = "the Caputo-Fabrizio integral"


@final
@dataclass(frozen=True, slots=True)
class CaputoFabrizioIntegral(FractionalOperator):
    r"""Caputo-Fabrizio integral: the weighted mean of f and its integral.

    .. math:: I^\alpha f(t) = \frac{1}{M(\alpha)} \Big[ (1-\alpha) f(t) + \alpha \int_{t_0}^{t} f(s)\,ds \Big],
        \quad 0 < \alpha \le 1.

    It inverts :class:`CaputoFabrizio` up to the value at the origin: I D f = f - f(t0).

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array.
    method : str
        For the ordinary integral, as for :class:`RiemannLiouvilleIntegral` at order 1: ``"simpson"`` (order 4; used by
        ``"auto"``), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        M(alpha), as for :class:`CaputoFabrizio`.

    References
    ----------
    J. Losada, J. J. Nieto, Progr. Fract. Differ. Appl. 1 (2015) 87-92, with M(alpha) = 2/(2 - alpha).
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition: ClassVar[str] = "caputo_fabrizio"
    short_names: ClassVar[tuple[str, ...]] = ("CF",)
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = r"\frac{1}{M(\alpha)} \Big[ (1-\alpha) f(t) + \alpha \int_{t_0}^{t} f(s)\,ds \Big]"
    rules: ClassVar[Any] = RiemannLiouvilleIntegral.rules
    any_grid_rules: ClassVar[Any] = RiemannLiouvilleIntegral.any_grid_rules
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        outcome = RiemannLiouvilleIntegral(1.0, self.method).applied(samples, _WHO)
        return normalised(mixed(outcome, samples.values, order), self.normalisation, order, divide=True)

    def _of_function(self, function: Function) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        outcome = RiemannLiouvilleIntegral(1.0, self.method)._of_function(function)
        return normalised(mixed(outcome, function.at(function.points), order), self.normalisation, order, divide=True)


def mixed(outcome: Outcome, values: Any, order: Order) -> Outcome:
    """``(1 - alpha) f`` and ``alpha`` times an integral of it."""
    share, error = scalar(order.value, values), outcome.error
    return replace(
        outcome,
        value=(1.0 - share) * values + share * outcome.value,
        error=None if error is None else lambda: share * error(),
        reusable=None,
    )


@names_options_of(FractionalOperator.__call__)
def caputo_fabrizio_integral(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Caputo-Fabrizio integral of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, normalisation
        As for :class:`CaputoFabrizioIntegral`.
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
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.caputo_fabrizio_integral(np.ones(5), t, 0.5).round(3)
    array([0.5  , 0.625, 0.75 , 0.875, 1.   ])
    """
    return CaputoFabrizioIntegral(alpha, method, normalisation)(f, t, **options)
