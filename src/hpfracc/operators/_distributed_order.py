"""The derivative of distributed order: an integral of Caputo derivatives over their orders."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Unpack, final

import numpy as np
from numpy.polynomial import legendre

from hpfracc import _reading
from hpfracc._choices import L1Name
from hpfracc.errors import InvalidInputError
from hpfracc.operators._caputo import Caputo
from hpfracc.operators.core.applying import largest_nearby
from hpfracc.operators.core.base import FractionalOperator, function_of
from hpfracc.operators.core.call_types import MethodOptions
from hpfracc.operators.core.function import Function, called_once
from hpfracc.operators.core.reporting import Outcome, weighted_outcome
from hpfracc.operators.core.values import Samples

#: Panels of orders and points of each, at which the weight is evaluated first; halvings of panels that do not resolve
#: it, and the most panels that are halved.
_PANELS, _POINTS, _HALVINGS, _MOST = 32, 16, 40, 64
#: What may be unresolved of the weight, relative to its integral.
_RESOLVED = 1e-15
#: The error of a panel in units of its newest coefficients: 2.6 at most at kinks, jumps and roots.
_SAFETY = 4.0
#: Nodes by default; in an equation as many as leave this error, doubled from the fewest to the most.
_NODES, _ERROR, _FEWEST, _LARGEST = 16, 1e-12, 8, 200
#: Directions in the plane of s in which the error of the rule is looked at.
_DIRECTIONS = np.exp(1j * np.array([0.0, 0.5, 0.75]) * np.pi)

Array = np.ndarray[Any, Any]


class _Measure(NamedTuple):
    """Orders and parts of a fine rule for the weight, and what it may miss of the integral near each order."""

    orders: Array
    parts: Array
    missed: Array


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
    nodes : int, optional
        Number of nodes of the Gauss rule with this weight, whose error falls exponentially, however narrow or rough
        the weight is. By default 16, and in an equation as many as make the error of the rule negligible. Peaks of
        the weight that are narrower than about a thousandth of the interval may be missed. The error estimate of an
        operator includes the difference from three quarters of the nodes, that of an equation :meth:`rule_error`.
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
    nodes: int | None = None
    method: L1Name = "auto"

    definition = "distributed_order"
    short_names = ("DO",)
    who = "the derivative of distributed order"
    inner = Caputo

    def __post_init__(self) -> None:
        low = _reading.number("DistributedOrder: low", self.low, least=0.0, below=2.0)
        _reading.number("DistributedOrder: high", self.high, above=low, most=2.0)
        if self.low < 1.0 < self.high:
            raise InvalidInputError("DistributedOrder: orders on both sides of 1; use one below or above, and terms=")
        if self.nodes is not None:
            _reading.whole("DistributedOrder: nodes", self.nodes, least=1, most=_LARGEST)

    @property
    def alpha(self) -> float:
        """The highest order."""
        return self.high

    def terms(self) -> tuple[tuple[float, float], ...]:
        """Coefficients and orders of the quadrature rule, largest order first."""
        count = self.nodes or _NODES
        return self._quadrature(self._measure(count), count)

    def resolved(self, length: float) -> DistributedOrder:
        """The same with as many nodes as an equation over this time needs; with a given number as it is."""
        if self.nodes is not None:
            return self
        measure, times, nodes = self._measure(_LARGEST), length * 10.0 ** -np.arange(13.0), _FEWEST
        enough = max(_ERROR, 2.0 * float(self._missed(measure, times).max()))
        while nodes < _LARGEST and self._errors(measure, nodes, times).max() > enough:
            nodes = min(2 * nodes, _LARGEST)
        return replace(self, nodes=nodes)

    def rule_error(self, times: Array) -> Array:
        r"""The relative error of the rule in :math:`\int w(\beta) s^\beta d\beta`, the largest for ``|s| = 1/t``.

        A solution at the time t has about the same relative error.
        """
        return self._errors(self._measure(_LARGEST), self.nodes or _NODES, times)

    def _quadrature(self, measure: _Measure, count: int) -> tuple[tuple[float, float], ...]:
        orders, parts = _gauss(measure, count)
        kept = parts > 0.0
        return tuple(sorted(zip(parts[kept].tolist(), orders[kept].tolist(), strict=True), key=lambda pair: -pair[1]))

    def _errors(self, measure: _Measure, count: int, times: Array) -> Array:
        logs = (-np.log(times)[:, None] + np.log(_DIRECTIONS)).reshape(-1, 1)
        found = np.array(self._quadrature(measure, count))
        exact = np.exp(logs * measure.orders) @ measure.parts
        error = np.abs(np.exp(logs * found[:, 1]) @ found[:, 0] - exact).reshape(len(times), -1).max(axis=1)
        return np.asarray(error / np.abs(exact.reshape(len(times), -1)[:, 0]) + self._missed(measure, times))

    @staticmethod
    def _missed(measure: _Measure, times: Array) -> Array:
        powers = times[:, None] ** -measure.orders
        return np.asarray((powers @ measure.missed) / (powers @ measure.parts))

    def _measure(self, count: int) -> _Measure:
        """A rule that resolves the weight.

        Panels are halved where the newest Legendre coefficients of the weight have not decayed. A constant weight
        needs the Gauss-Legendre rule with ``count`` nodes alone.
        """
        if not callable(self.weight):
            x, w = legendre.leggauss(count)
            parts = 0.5 * (self.high - self.low) * w * _checked_weights([self.weight] * count, self._orders(x))
            return _Measure(self._orders(x), parts, 0.0 * parts)
        x, w = legendre.leggauss(_POINTS)
        last = (legendre.legvander(x, _POINTS - 1) * w[:, None])[:, -2:]
        edges = np.linspace(-1.0, 1.0, _PANELS + 1)
        panels, found, total = list(itertools.pairwise(edges)), [], 0.0
        for level in range(_HALVINGS + 1):
            rough = []
            for begin, end in panels:
                orders = self._orders(begin + 0.5 * (end - begin) * (1.0 + x))
                half = 0.25 * (end - begin) * (self.high - self.low)
                values = _checked_weights([self.weight(one) for one in orders.tolist()], orders)
                rough.append((half * float(np.abs(values @ last).sum()), begin, end, orders, half * w * values))
            total = total or sum(float(one[-1].sum()) for one in rough)
            unresolved = [one for one in rough if one[0] > _RESOLVED * total]
            if level == _HALVINGS or len(unresolved) > _MOST:
                unresolved = []
            kept = {one[1] for one in unresolved}
            found += [(*one[3:], np.full(_POINTS, _SAFETY * one[0] / _POINTS)) for one in rough if one[1] not in kept]
            panels = [pair for _, a, b, *_ in unresolved for pair in ((a, 0.5 * (a + b)), (0.5 * (a + b), b))]
            if not panels:
                break
        orders, parts, missed = (np.concatenate(each) for each in zip(*found, strict=True))
        if not total > 0.0:
            raise InvalidInputError("DistributedOrder: the weight is zero at every node; give a positive one")
        there = parts > 0.0
        return _Measure(orders[there], parts[there], missed[there])

    def _orders(self, places: Array) -> Array:
        """The orders at places of [-1, 1]."""
        return self.low + 0.5 * (self.high - self.low) * (1.0 + places)

    def _of_samples(self, samples: Samples) -> Outcome:
        return self._sum(lambda order: Caputo(order, self.method).applied(samples, self.who))

    def _of_function(self, function: Function) -> Outcome:
        kept = replace(function, f=called_once(function.f))
        return self._sum(lambda order: Caputo(order, self.method)._of_function(kept))

    def _sum(self, part: Callable[[float], Outcome]) -> Outcome:
        part, count, measure = lru_cache(part), self.nodes or _NODES, self._measure(self.nodes or _NODES)
        pairs = [(part(order), share) for share, order in self._quadrature(measure, count)]
        total = weighted_outcome(pairs, f"{count} orders")
        error = total.error

        def with_rule() -> Any:
            assert error is not None
            few = 3 * count // 4 or 2
            missed = float(measure.missed.sum() / measure.parts.sum())
            coarse = measure if callable(self.weight) else self._measure(few)
            with np.errstate(invalid="ignore"):
                other = sum(share * part(order).value for share, order in self._quadrature(coarse, few))
                rest = abs(total.value - other)
            return error() + largest_nearby(rest + missed * abs(total.value))

        return total if error is None else replace(total, error=with_rule)


def _checked_weights(values: list[Any], orders: Array) -> Array:
    found = np.array(values, dtype=object)
    with contextlib.suppress(TypeError, ValueError):
        found = found.astype(float)
    if found.dtype == object or found.shape != orders.shape or not (np.isfinite(found) & (found >= 0.0)).all():
        for value, order in zip(values, orders, strict=True):
            _reading.number(f"DistributedOrder: weight({order:g})", value, least=0.0)
    return np.asarray(found, dtype=float)


def _gauss(measure: _Measure, count: int) -> tuple[Array, Array]:
    """The Gauss rule of a sum over points, by Lanczos' process with orthogonalisation."""
    points, parts, _ = measure
    basis = [np.sqrt(parts / parts.sum())]
    main, side = [], []
    for _ in range(count):
        across = np.stack(basis)
        new = points * basis[-1]
        main.append(float(new @ basis[-1]))
        for _ in range(2):
            new = new - across.T @ (across @ new)
        side.append(float(np.linalg.norm(new)))
        if side[-1] <= 1e-15:
            break
        basis.append(new / side[-1])
    n = len(main)
    nodes, vectors = np.linalg.eigh(np.diag(main) + np.diag(side[: n - 1], 1) + np.diag(side[: n - 1], -1))
    return nodes, parts.sum() * vectors[0] ** 2


@function_of(DistributedOrder, see_also="caputo, variable_order, solve_fpde")
def distributed_order(
    f: Any,
    t: Any = None,
    weight: Callable[[float], float] | float = 1.0,
    low: float = 0.0,
    high: float = 1.0,
    nodes: int | None = None,
    **options: Unpack[MethodOptions[L1Name]],
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
