"""The Atangana-Baleanu integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.operators._caputo_fabrizio_integral import mixed
from hpfracc.operators._riemann_liouville_integral import RiemannLiouvilleIntegral
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.memory_kernel import normalised, read_memory_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples

__all__ = ["AtanganaBaleanuIntegral", "atangana_baleanu_integral"]

_WHO = "the Atangana-Baleanu integral"


@final
@dataclass(frozen=True, slots=True)
class AtanganaBaleanuIntegral(FractionalOperator):
    r"""Atangana-Baleanu integral: the weighted mean of f and its Riemann-Liouville integral.

    .. math:: I^\alpha f(t) = \frac{1-\alpha}{B(\alpha)} f(t)
        + \frac{\alpha}{B(\alpha)\,\Gamma(\alpha)} \int_{t_0}^{t} (t-s)^{\alpha-1} f(s)\,ds, \quad 0 < \alpha \le 1.

    It is the inverse of :class:`AtanganaBaleanuRiemann`, and of :class:`AtanganaBaleanu` up to the value at the origin.

    Parameters
    ----------
    alpha : float or scalar array
        The order, between 0 and 1; differentiable if it is a tensor or JAX array.
    method : str
        For the Riemann-Liouville integral, as for :class:`RiemannLiouvilleIntegral`: ``"simpson"`` (order 3 + alpha;
        used by ``"auto"``), ``"trapezoid"`` (2), ``"cq2"`` to ``"cq6"``; for callables ``"spectral"`` or ``"graded"``.
    normalisation : float or callable
        B(alpha), as for :class:`AtanganaBaleanu`.

    References
    ----------
    A. Atangana, D. Baleanu, Thermal Science 20 (2016) 763-769.
    """

    alpha: Any
    method: str = "auto"
    normalisation: Any = 1.0

    definition: ClassVar[str] = "atangana_baleanu"
    short_names: ClassVar[tuple[str, ...]] = ("AB",)
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = (
        r"\frac{1-\alpha}{B(\alpha)} f(t) + \frac{\alpha}{B(\alpha)\,\Gamma(\alpha)}"
        r" \int_{t_0}^{t} (t-s)^{\alpha-1} f(s)\,ds"
    )
    rules: ClassVar[Any] = RiemannLiouvilleIntegral.rules
    any_grid_rules: ClassVar[Any] = RiemannLiouvilleIntegral.any_grid_rules
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        outcome = RiemannLiouvilleIntegral(self.alpha, self.method).applied(samples, _WHO)
        return normalised(mixed(outcome, samples.values, order), self.normalisation, order, divide=True)

    def _of_function(self, function: Function) -> Outcome:
        order = read_memory_order(self.alpha, _WHO)
        outcome = RiemannLiouvilleIntegral(self.alpha, self.method)._of_function(function)
        return normalised(mixed(outcome, function.at(function.points), order), self.normalisation, order, divide=True)


@names_options_of(FractionalOperator.__call__)
def atangana_baleanu_integral(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    normalisation: Any = 1.0,
    **options: Unpack[CallOptions],
) -> Any:
    """Atangana-Baleanu integral of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, normalisation
        As for :class:`AtanganaBaleanuIntegral`.
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
    >>> hf.atangana_baleanu_integral(np.ones(5), t, 0.5).round(4)  # 1/2 + sqrt(t / pi)
    array([0.5   , 0.7821, 0.8989, 0.9886, 1.0642])
    """
    return AtanganaBaleanuIntegral(alpha, method, normalisation)(f, t, **options)
