"""The Riemann-Liouville integral."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Unpack, final

from hpfracc._signatures import names_options_of
from hpfracc.errors import InvalidInputError
from hpfracc.operators.core.applying import apply_rule, pick_rule, streamed_rule
from hpfracc.operators.core.base import CallOptions, FractionalOperator, operator_of
from hpfracc.operators.core.function import Function
from hpfracc.operators.core.order import Order, read_order
from hpfracc.operators.core.reporting import Outcome
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.spectral import differentiate
from hpfracc.operators.core.values import Samples
from hpfracc.operators.rules.any_trapezoid import AnyGridTrapezoid, FastTrapezoid
from hpfracc.operators.rules.quadrature import QUADRATURES
from hpfracc.operators.rules.simpson import Simpson
from hpfracc.operators.rules.trapezoid import Trapezoid

__all__ = ["RiemannLiouvilleIntegral", "riemann_liouville_integral"]


@final
@dataclass(frozen=True, slots=True)
class RiemannLiouvilleIntegral(FractionalOperator):
    r"""Riemann-Liouville integral: the repeated integral, generalised to any positive order.

    .. math:: I^\mu f(t) = \frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} f(s)\,ds, \quad \mu > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); differentiable if it is a tensor or JAX array, at 0 such an order gives
        the limit from above, which is 0 at the origin, and its one-sided derivative.
    method : str
        For samples on a uniform grid ``"simpson"`` (order 3 + alpha, at most 4; used by ``"auto"`` for three or more
        samples), ``"trapezoid"`` (order 2) or ``"cq2"`` to ``"cq6"``, convolution quadrature of that order; on other
        grids ``"trapezoid"`` (used by ``"auto"``) or ``"fast"`` (``"soe"``), the same rule with its kernel approximated
        by a sum of exponentials; for callables ``"spectral"`` or ``"graded"``.
    side : {"left", "right"}
        ``"left"`` integrates from the origin to t, as above; ``"right"`` from t to an end b, which is ``origin=`` or
        the last point:

        .. math:: I^\mu_{b-} f(t) = \frac{1}{\Gamma(\mu)} \int_{t}^{b} (s-t)^{\mu-1} f(s)\,ds.

    References
    ----------
    S. G. Samko, A. A. Kilbas, O. I. Marichev, *Fractional Integrals and Derivatives*, 1993, section 2.
    """

    alpha: Any
    method: str = "auto"
    side: str = "left"

    definition: ClassVar[str] = "riemann_liouville"
    short_names: ClassVar[tuple[str, ...]] = ("RL",)
    kind: ClassVar[str] = "integral"
    formula: ClassVar[str] = r"\frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} f(s)\,ds"
    rules: ClassVar[Any] = {"simpson": Simpson(), "trapezoid": Trapezoid(), **QUADRATURES}
    any_grid_rules: ClassVar[Any] = {"trapezoid": AnyGridTrapezoid(), "fast": FastTrapezoid()}
    grids: ClassVar[tuple[str, ...]] = ("uniform", "any")

    def _of_samples(self, samples: Samples) -> Outcome:
        return self.applied(samples, "the Riemann-Liouville integral")

    def applied(self, samples: Samples, who: str) -> Outcome:
        """Apply to samples. Errors call the operator ``who``."""
        order = self._order()
        rule = pick_rule(self, self.method, who, samples.grid)
        if self.method == "auto" and samples.n <= 2 and samples.grid.uniform:
            rule = Trapezoid()
        if order.plain and order.known == 0.0:
            return Outcome(samples.values * 1, "identity")
        if rule.name in QUADRATURES:
            order = order.negated()
        return apply_rule(rule, samples, order, who)

    def _streamed(self) -> tuple[Rule, Order]:
        return streamed_rule(self, self.method, "the Riemann-Liouville integral", self._order())

    def _of_function(self, function: Function) -> Outcome:
        return differentiate(function, self._order().negated(), self.method, initial_terms=False)

    def _order(self) -> Order:
        order = read_order(self.alpha)
        if order.known is not None and order.known < 0.0:
            raise InvalidInputError(
                f"alpha={order.known:g}: the order of an integral must be positive; "
                f"use riemann_liouville(f, t, {-order.known:g}) for the derivative"
            )
        return order


@names_options_of(FractionalOperator.__call__)
def riemann_liouville_integral(
    f: Any,
    t: Any = None,
    alpha: Any = None,
    *,
    method: str = "auto",
    side: str = "left",
    **options: Unpack[CallOptions],
) -> Any:
    """Riemann-Liouville integral of samples or of a callable.

    Parameters
    ----------
    f : array_like or callable
        Samples, or a function of an array of points.
    t : array_like, optional
        The points of the samples (or give ``step``), or those at which the result of a callable is wanted.
    alpha, method, side
        As for :class:`RiemannLiouvilleIntegral`.
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
    >>> bool(np.allclose(hf.riemann_liouville_integral(np.ones(101), t, 0.5), 2 * np.sqrt(t / np.pi)))
    True
    """
    return operator_of(RiemannLiouvilleIntegral, alpha, method, side)(f, t, **options)
