"""The Riesz derivative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import UNIFORM, apply_rule, pick_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.periodic import check_period, first_point, of_periodic_function, sampled
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.centred import Centred, Centred4
from hpfracc.operators.rules.periodic import RieszWaves

__all__ = ["Riesz", "riesz"]

_WHO = "the Riesz derivative"


@final
@dataclass(frozen=True, slots=True)
class Riesz(FractionalOperator):
    r"""Riesz derivative: symmetric in space, and self-adjoint.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha} = -(-\Delta)^{\alpha/2} f, \quad
        \text{of waves } -|\kappa|^\alpha e^{i\kappa x}.

    For every :math:`\alpha > 0`; the second derivative for :math:`\alpha = 2`. It equals the sum of both one-sided
    Riemann-Liouville derivatives divided by :math:`-2\cos(\pi\alpha/2)`, a formula that fails at odd orders.

    Parameters
    ----------
    alpha : float or scalar array
        The order; differentiable if it is a tensor or JAX array.
    method : str
        ``"centred"`` (order 2; used by ``"auto"``) and ``"centred4"`` (order 4) are for a function on the line that is
        zero outside its samples; the order holds if the function extended by zero is smooth. ``"spectral"`` is for a
        periodic function sampled over one period, and is exact on the waves that the samples resolve.
    period : float, optional
        For ``"spectral"``: as for :class:`Weyl`.

    Notes
    -----
    A callable is sampled at the points ``t``, a uniform grid, for the centred methods; for ``"spectral"`` it is sampled
    over its period as finely as needed, and ``t`` may be any points. Every value depends on every sample, so one
    non-finite sample makes its row non-finite.

    References
    ----------
    M. D. Ortigueira, Int. J. Math. Math. Sci. 2006, 48391; C. Çelik, M. Duman, J. Comput. Phys. 231 (2012) 1743-1750.
    """

    alpha: Any
    method: str = "auto"
    period: Any = None

    definition: ClassVar[str] = "riesz"
    short_names: ClassVar[tuple[str, ...]] = ("R",)
    formula: ClassVar[str] = r"-(-\Delta)^{\alpha/2} f"
    rules: ClassVar[Any] = {"centred": Centred(), "centred4": Centred4(), "spectral": RieszWaves()}

    def _start_of(self, t: Any, origin: Any) -> Any:
        return first_point(t, origin, _WHO)

    def _order(self) -> Order:
        order = read_order(self.alpha)
        if order.known is not None and order.known <= 0.0:
            raise InvalidInputError(
                f"alpha={order.known:g}: the order of {_WHO} must be positive; for the Riesz potential use "
                "fractional_laplacian with a negative order"
            )
        return order

    def _of_samples(self, samples: Samples) -> Outcome:
        order = self._order()
        rule = pick_rule(self, self.method, _WHO, samples.grid)
        if isinstance(rule, RieszWaves):
            check_period(samples.grid, self.period, _WHO)
        elif self.period is not None:
            raise InvalidInputError(f"period={self.period!r} is for method='spectral'; {rule.name!r} is not periodic")
        return apply_rule(rule, samples, order, _WHO)

    def _of_function(self, function: Function) -> Outcome:
        rule = pick_rule(self, self.method, _WHO, UNIFORM)
        if isinstance(rule, RieszWaves):
            return of_periodic_function(function, rule, self._order(), self.period, _WHO)
        return self._of_samples(sampled(function, _WHO))


@names_options_of(FractionalOperator.__call__)
def riesz(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    period: Any = None,
    **options: Unpack[CallOptions],
) -> Any:
    """Riesz derivative of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, period
        As for :class:`Riesz`.
    **options
        ``step``, ``axis``, ``dim``, ``time_unit``, ``rtol``, ``backend`` and ``full_output``, as for
        :meth:`FractionalOperator.__call__`.

    Returns
    -------
    array or OperatorResult
        The derivative in the library and shape of the samples (the shape of ``t`` for a callable), or an
        :class:`OperatorResult` with ``full_output=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> x = np.linspace(0.0, 2.0 * np.pi, 32, endpoint=False)
    >>> bool(np.allclose(hf.riesz(np.cos(2 * x), x, 1.5, method="spectral"), -(2**1.5) * np.cos(2 * x)))
    True
    >>> hf.riesz(np.array([0.0, 1.0, 4.0, 1.0, 0.0]), step=1.0, alpha=2.0)  # the second difference
    array([ 1.,  2., -6.,  2.,  1.])
    """
    return Riesz(alpha, method, period)(f, t, **options)
