"""The Weyl integral of periodic functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators._weyl import Weyl
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import read_order
from hpfracc.operators.core.periodic import first_point
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.periodic import WeylWaves

__all__ = ["WeylIntegral", "weyl_integral"]


@final
@dataclass(frozen=True, slots=True)
class WeylIntegral(FractionalOperator):
    r"""Weyl integral of a periodic function without mean: the inverse of the Weyl derivative.

    .. math:: I^\alpha f(x) = \sum_{k \ne 0} (i\kappa_k)^{-\alpha}\, c_k\, e^{i\kappa_k x}, \quad
        \kappa_k = 2\pi k / L.

    The integral of a constant over the whole past diverges, so the mean of f is omitted. ``full_output`` reports it.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive; differentiable if it is a tensor or JAX array.
    method : str
        ``"spectral"``, the only one.
    period : float, optional
        As for :class:`Weyl`.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 19.
    """

    alpha: Any
    method: str = "auto"
    period: Any = None

    definition: ClassVar[str] = "weyl"
    short_names: ClassVar[tuple[str, ...]] = ("W",)
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = r"\sum_{k \ne 0} (i\kappa_k)^{-\alpha}\, c_k\, e^{i\kappa_k x}"
    rules: ClassVar[Any] = {"spectral": WeylWaves()}

    def _start_of(self, t: Any, origin: Any) -> Any:
        return first_point(t, origin, "the Weyl integral")

    def _derivative(self) -> Weyl:
        order = read_order(self.alpha)
        if order.known is not None and order.known <= 0.0:
            raise InvalidInputError(f"alpha={order.known:g} is not the order of an integral; use weyl for derivatives")
        return Weyl(-self.alpha, self.method, self.period)

    def _of_samples(self, samples: Samples) -> Outcome:
        return _told(self._derivative().applied(samples, "the Weyl integral"))

    def _of_function(self, function: Function) -> Outcome:
        return _told(self._derivative()._of_function(function))


def _told(outcome: Outcome) -> Outcome:
    told = "; ".join(part for part in (outcome.message, "the mean of f is left out") if part)
    return replace(outcome, message=told, reusable=None)


@names_options_of(FractionalOperator.__call__)
def weyl_integral(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    period: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Weyl integral of samples over a period, or of a periodic callable. The mean is omitted.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, period
        As for :class:`WeylIntegral`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``rtol``, ``backend`` and ``full_output``, as for
        :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The integral in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.weyl_integral(np.cos(x), x, 1.0), np.sin(x)))
    True
    """
    return WeylIntegral(alpha, method, period)(f, t, **options)
