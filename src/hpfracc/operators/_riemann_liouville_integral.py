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
    r"""Riemann-Liouville integral: the repeated integral, for any positive number of times.

    .. math:: I^\mu f(t) = \frac{1}{\Gamma(\mu)} \int_{t_0}^{t} (t-s)^{\mu-1} f(s)\,ds, \quad \mu > 0.

    Parameters
    ----------
    alpha : float or scalar array
        The order, positive (0 gives f itself); a tensor or JAX array carries its derivative, and at 0 is the limit from
        above, 0 at the origin, with the derivative from above.
    method : str
        For samples on a uniform grid ``"simpson"`` (order 3 + alpha, at most 4; what ``"auto"`` takes from three
        samples on), ``"trapezoid"`` (order 2) or ``"cq2"`` to ``"cq6"``, convolution quadrature of that order; on
        any other ``"trapezoid"`` (what ``"auto"`` takes) or ``"fast"`` (``"soe"``), the same rule with its memory as a
        sum of exponentials; for callables ``"spectral"`` or ``"graded"``.
    side : {"left", "right"}
        From the origin up to t, as above, or from t up to an end b, the last point unless ``origin=`` says otherwise:

        .. math:: I^\mu_{b-} f(t) = \frac{1}{\Gamma(\mu)} \int_{t}^{b} (s-t)^{\mu-1} f(s)\,ds.
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
        """To samples, for an operator that errors are to call ``who``."""
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
                f"alpha={order.known:g}: the order of an integral is positive; "
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

    ``alpha``, ``method`` and ``side`` are those of :class:`RiemannLiouvilleIntegral`; the ``options`` (``step``,
    ``axis``, ``origin``, ``factor``, ``rtol``, ``backend``, ``full_output``) those of its call.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> t = np.linspace(0.0, 1.0, 101)
    >>> bool(np.allclose(hf.riemann_liouville_integral(np.ones(101), t, 0.5), 2 * np.sqrt(t / np.pi)))
    True
    """
    return operator_of(RiemannLiouvilleIntegral, alpha, method, side)(f, t, **options)
