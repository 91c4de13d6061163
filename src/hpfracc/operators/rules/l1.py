"""L1: piecewise linear interpolation under the Caputo derivative."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, final

from hpfracc._xp import Namespace, array_namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, power_differences
from hpfracc.operators.core.values import Finish, Samples, constant, join
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.first_points import first_points, head_of, slope_at_origin, whole_at_origin
from hpfracc.operators.rules.increments import backward_size, increments, start_points

__all__ = [
    "L1Rule",
    "LType",
    "Maker",
    "UniformLType",
    "convolve_increments",
    "fractional_part",
    "summands",
    "with_start",
]

#: Sequences of weights from a namespace, an order and lags.
Maker = Callable[[Namespace, Any, Any], tuple[Any, ...]]


def fractional_part(order: Order) -> Order:
    """``alpha - n + 1`` in (0, 1]: the order that remains after n - 1 ordinary derivatives."""
    whole = order.ceiling - 1
    if whole == 0:
        return order
    known = None if order.known is None else order.known - whole
    return Order(order.value - whole, known, 1, order.xp)


def with_start(value: Any, samples: Samples, order: Order) -> Any:
    """``value`` with its first points filled in, for orders above 1; see :meth:`Rule.head`."""
    count, _ = head_of(order)
    if not count:
        return value
    n, last = order.ceiling, start_points(order.ceiling)
    first = array_namespace(samples.values).stop_gradient(samples.values[..., :1])
    origin = whole_at_origin(first * 0, lambda: slope_at_origin(samples, order), order)
    if n == 1:
        return join([origin, value[..., 1:]])
    return join([origin, first_points(samples, order, n, last), value[..., last:]])


class LType(Rule):
    """What the rules of the Caputo derivative by piecewise polynomials share, on every grid."""

    def accuracy(self, alpha: float) -> float:
        """``n + 1 - alpha``."""
        return math.ceil(alpha) + 1 - alpha

    def least_points(self, order: Order) -> int:
        """Two, and ``n + 3`` above order 1."""
        return 2 if order.ceiling <= 1 else start_points(order.ceiling) + 1

    def head(self, order: Order) -> tuple[int, int]:
        """Above order 1 the first n + 2 points from n + 3 samples."""
        return head_of(order)


class UniformLType(LType):
    """Those for uniform grids: one causal convolution of the increments."""

    one_call = True

    @staticmethod
    @abstractmethod
    def make(xp: Namespace, beta: Any, n: Any) -> tuple[Any, ...]:
        """The weights of the increments and, perhaps, a row with corrections for the first one."""

    def magnification(self, alpha: float) -> float:
        """That of the differences, doubled by the increments."""
        return 2.0 * backward_size(math.ceil(alpha) - 1)

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the increments."""
        return with_start(self.apply_with_term(samples, order, None, None), samples, order)

    def apply_with_term(self, samples: Samples, order: Order, term: Maker | None, finish: Finish | None) -> Any:
        """The same up to order 1 plus a sequence times the first sample, by the same convolution."""
        return convolve_increments(self.name, self.make, samples, order, term, finish)


@final
class L1Rule(UniformLType):
    r"""Caputo derivative of the piecewise linear interpolant.

    .. math::
        D^\alpha f(t_k) \approx \frac{h^{-\beta}}{\Gamma(2-\beta)} \sum_{j=1}^{k} a_{k-j}\,(g_j - g_{j-1}),
        \quad a_l = (l+1)^{1-\beta} - l^{1-\beta},

    with :math:`g = f^{(n-1)}` (by backward differences of order 4 where :math:`n = \lceil\alpha\rceil > 1`) and
    :math:`\beta = \alpha - n + 1`. Order :math:`2 - \beta = n + 1 - \alpha` at a fixed t for f with n + 1 continuous
    derivatives; for f that starts like :math:`t^s` it is at most :math:`1 + s` at a fixed t, and there is no
    convergence at the first points. Exactly zero on constants; exact on linear functions for :math:`\alpha < 1`. Above
    order 1 the first n + 2 points come from the polynomial through the first n + 3 samples, with an error of
    :math:`O(h^{n+3-\alpha})`.

    References
    ----------
    K. B. Oldham, J. Spanier, *The Fractional Calculus*, 1974; Z.-Z. Sun, X. Wu, Appl. Numer. Math. 56 (2006) 193.
    """

    name = "l1"

    @staticmethod
    def make(xp: Namespace, beta: Any, n: int | Lags) -> tuple[Any]:
        """The weights."""
        return (power_differences(xp, 1.0 - beta, n) * xp.rgamma(2.0 - beta),)


def convolve_increments(
    name: str, make: Maker, samples: Samples, order: Order, term: Maker | None = None, finish: Finish | None = None
) -> Any:
    """The causal convolution of an L-type rule.

    Parameters
    ----------
    name : str
        Names the weights.
    make : callable
        Gives the weights of the increments and, perhaps, a row with corrections for the first one.
    samples, order
        What to convolve.
    term : callable, optional
        Up to order 1: gives a sequence whose product with the first sample is added, with the scale of the weights.
    finish : callable, optional
        As for :meth:`Samples.convolve`.
    """

    def make_both(xp: Namespace, beta: Any, n: int | Lags) -> tuple[Any, ...]:
        assert term is not None
        weights, *corrections = make(xp, beta, n)
        return weights, xp.concatenate([term(xp, beta, n)[0].reshape(1, -1), *corrections], 0)

    def scaled(scheme: Hashable, make: Maker) -> tuple[tuple[Any, ...], Hashable, Any]:
        part = fractional_part(order)
        return scaled_weights(scheme, make, part, samples, -1, whole=order.ceiling - 1, few=True, strict=True)

    if term is None or order.plain:
        # Those of a plain order are cached, and the same with and without the term.
        (weights, *rows), key, factor = scaled(name, make)
        named = key
        if term is not None:
            (*rows,), named, _ = scaled((name, "term"), lambda xp, beta, n: make_both(xp, beta, n)[1:])
    else:
        (weights, *rows), key, factor = scaled((name, "term"), make_both)
        named = key
    options = summands(samples, order, factor)
    if rows:
        options["starts"] = constant(rows[0], samples.values, None if named is None else (named, "starts"))
        options["starts_from"] = 1 if term is None else 0
    return samples.convolve(weights, key=key, finish=finish, **options)


def summands(samples: Samples, order: Order, factor: Any) -> dict[str, Any]:
    """The input of an L-type rule, times ``factor`` unless that is None: increments of the derivative of order n - 1.

    Up to order 1 these are differences of the samples, which the convolution computes itself.
    """
    values = samples.values if order.ceiling <= 1 else increments(samples.values, order.ceiling)
    return {"signal": values if factor is None else values * factor, "differences": order.ceiling <= 1}
