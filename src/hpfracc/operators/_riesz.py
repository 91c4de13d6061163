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
    r"""Riesz derivative: looks to both sides alike, and is self-adjoint.

    .. math:: \frac{d^\alpha f}{d|x|^\alpha} = -(-\Delta)^{\alpha/2} f, \quad
        \text{of waves } -|\kappa|^\alpha e^{i\kappa x}.

    For every :math:`\alpha > 0`; at 2 the second derivative. The derivative by both Riemann-Liouville derivatives over
    :math:`-2\cos(\pi\alpha/2)` is the same, but cannot be written at odd orders.

    Parameters
    ----------
    alpha : float or scalar array
        The order; a tensor or JAX array carries its derivative.
    method : str
        ``"centred"`` (order 2; what ``"auto"`` takes) and ``"centred4"`` (order 4) are for a function on the line that
        is zero outside its samples; the order holds where that continuation is smooth. ``"spectral"`` is for a periodic
        function sampled over one period, and exact on the waves it resolves. These are different functions: say which
        one yours is.
    period : float, optional
        For ``"spectral"``: as for :class:`Weyl`.

    Notes
    -----
    A callable is sampled at the points ``t``, a uniform grid, for the centred methods; for ``"spectral"`` it is sampled
    over its period as finely as its waves ask for, and ``t`` may be any points. Every value depends on every sample:
    one that is not finite makes its row so.
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
                f"alpha={order.known:g}: {_WHO} has a positive order; the Riesz potential is fractional_laplacian of "
                "a negative one"
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

    ``alpha``, ``method`` and ``period`` are those of :class:`Riesz`; the ``options`` (``step``, ``axis``, ``rtol``,
    ``backend``, ``full_output``) those of its call.

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
