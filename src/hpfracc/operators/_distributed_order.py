"""The derivative of distributed order: an integral of Caputo derivatives over their orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Unpack, final

import numpy as np
from numpy.polynomial import legendre

from hpfracc import _reading
from hpfracc._choices import RuleName
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.applying import largest_nearby
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MethodOptions
from hpfracc.operators.core.function import Function, called_once
from hpfracc.operators.core.reporting import Outcome, weighted_outcome
from hpfracc.operators.core.values import Samples

#: Panels of orders, and points of each, at which an error estimate evaluates the weight.
_PANELS, _POINTS = 32, 16

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, slots=True)
class DistributedOrder(FractionalOperator):
    r"""Derivative of distributed order: Caputo derivatives of all orders of an interval, with a weight.

    .. math:: D^w f(t) = \int_a^b w(\beta)\,D^\beta f(t)\,d\beta.

    Zero on constants (for orders below 1). Called like every operator, and in place of the order of a partial
    differential equation, ``solve_fpde(..., alpha=DistributedOrder(...))``.

    Parameters
    ----------
    weight : callable or float
        ``w(beta)``, at least 0.
    low, high : float
        a and b, in [0, 2] with b at most 1 or a at least 1.
    nodes : int
        Number of Gauss-Legendre nodes in the order; the error falls exponentially if the weight is smooth. The error
        estimate of an operator includes the differences from three quarters of them, and from the integral of the
        weight times the polynomial through all, which shows weights that are narrow.
    method : str
        For operators: as for :class:`Caputo`, with the order of accuracy at b.

    References
    ----------
    M. Caputo, Fract. Calc. Appl. Anal. 4 (2001) 421-442; K. Diethelm, N. J. Ford, J. Comput. Appl. Math. 225 (2009)
    96-104.
    """

    weight: Callable[[float], float] | float = 1.0
    low: float = 0.0
    high: float = 1.0
    nodes: int = 16
    method: RuleName = "auto"

    definition = "distributed_order"
    short_names = ("DO",)
    who = "the derivative of distributed order"
    inner = Caputo

    def __post_init__(self) -> None:
        low = _reading.number("DistributedOrder: low", self.low, least=0.0, below=2.0)
        _reading.number("DistributedOrder: high", self.high, above=low, most=2.0)
        if self.low < 1.0 < self.high:
            raise InvalidInputError("DistributedOrder: orders on both sides of 1; use one below or above, and terms=")
        _reading.whole("DistributedOrder: nodes", self.nodes, least=1, most=200)

    @property
    def alpha(self) -> float:
        """The highest order."""
        return self.high

    def terms(self) -> tuple[tuple[float, float], ...]:
        """Coefficients and orders of the quadrature rule, largest order first."""
        x, w = legendre.leggauss(self.nodes)
        found = []
        for order, part in zip(self._orders(x), 0.5 * (self.high - self.low) * w, strict=True):
            value = self.weight(float(order)) if callable(self.weight) else self.weight
            weight = _reading.number(f"DistributedOrder: weight({order:g})", value, least=0.0)
            if weight > 0.0:
                found.append((float(part) * weight, float(order)))
        if not found:
            raise InvalidInputError("DistributedOrder: the weight is zero at every node; give a positive one")
        return tuple(sorted(found, key=lambda pair: -pair[1]))

    def _orders(self, places: Array) -> Array:
        """The orders at places of [-1, 1]."""
        return self.low + 0.5 * (self.high - self.low) * (1.0 + places)

    def _interpolated(self) -> list[tuple[float, float]]:
        """The coefficients and orders of the integral of the weight times the polynomial through the nodes.

        With narrow or rough weights, of which few nodes tell little, it differs from the quadrature rule.
        """
        x, w = legendre.leggauss(self.nodes)
        inner, parts = legendre.leggauss(_POINTS)
        fine = (np.linspace(-1.0, 1.0, _PANELS, endpoint=False)[:, None] + (1.0 + inner) / _PANELS).reshape(-1)
        weights = [self.weight(float(order)) if callable(self.weight) else self.weight for order in self._orders(fine)]
        moments = (weights * np.tile(parts / _PANELS, _PANELS)) @ legendre.legvander(fine, self.nodes - 1)
        shares = (moments * (np.arange(self.nodes) + 0.5)) @ (legendre.legvander(x, self.nodes - 1).T * w)
        return list(zip(0.5 * (self.high - self.low) * shares, self._orders(x).tolist(), strict=True))

    def _of_samples(self, samples: Samples) -> Outcome:
        return self._sum(lambda order: Caputo(order, self.method).applied(samples, self.who))

    def _of_function(self, function: Function) -> Outcome:
        kept = replace(function, f=called_once(function.f))
        return self._sum(lambda order: Caputo(order, self.method)._of_function(kept))

    def _sum(self, part: Callable[[float], Outcome]) -> Outcome:
        part = lru_cache(part)
        total = weighted_outcome([(part(order), share) for share, order in self.terms()], f"{self.nodes} orders")
        error = total.error

        def with_rule() -> Any:
            assert error is not None
            found, fewer = error(), replace(self, nodes=3 * self.nodes // 4 or 2)
            for terms in (fewer.terms(), self._interpolated()):
                with np.errstate(invalid="ignore"):
                    found = found + largest_nearby(
                        abs(total.value - sum(share * part(order).value for share, order in terms))
                    )
            return found

        return total if error is None else replace(total, error=with_rule)


@function_of(DistributedOrder, see_also="caputo, variable_order, solve_fpde")
def distributed_order(
    f: Any,
    t: Any = None,
    weight: Callable[[float], float] | float = 1.0,
    low: float = 0.0,
    high: float = 1.0,
    nodes: int = 16,
    **options: Unpack[MethodOptions],
) -> Any:
    """Derivative of distributed order of samples or of a callable.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> value = hf.distributed_order(np.square, 2.0, lambda beta: math.gamma(3.0 - beta))  # 2 (t^2 - t) / log t
    >>> bool(np.isclose(value, 4.0 / np.log(2.0)))
    True
    """
