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
    r"""Caputo-Fabrizio integral: the mean of f and of its integral, of weights 1 - alpha and alpha.

    .. math:: I^\alpha f(t) = \frac{1}{M(\alpha)} \Big[ (1-\alpha) f(t) + \alpha \int_{t_0}^{t} f(s)\,ds \Big],
        \quad 0 < \alpha \le 1.

    It undoes :class:`CaputoFabrizio` up to the value at the origin: I D f = f - f(t0).

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; a tensor or JAX array carries its derivative.
    method : str
        For the ordinary integral, as for :class:`RiemannLiouvilleIntegral` at order 1: ``"simpson"`` (order 4; what
        ``"auto"`` takes), ``"trapezoid"``, ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        M(alpha), as for :class:`CaputoFabrizio`.

    References
    ----------
    J. Losada, J. J. Nieto, Progr. Fract. Differ. Appl. 1 (2015) 87-92, whose M is 2/(2 - alpha).
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

    ``alpha``, ``method`` and ``normalisation`` are those of :class:`CaputoFabrizioIntegral`; the ``options`` (``step``,
    ``axis``, ``origin``, ``factor``, ``rtol``, ``backend``, ``full_output``) those of its call.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 5)
    >>> hf.caputo_fabrizio_integral(np.ones(5), t, 0.5).round(3)
    array([0.5  , 0.625, 0.75 , 0.875, 1.   ])
    """
    return CaputoFabrizioIntegral(alpha, method, normalisation)(f, t, **options)
