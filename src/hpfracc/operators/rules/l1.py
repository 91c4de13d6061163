"""L1 and L1-2: piecewise linear and quadratic interpolation under the Caputo derivative, on uniform grids."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, final

from hpfracc._xp import Namespace
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, power_differences, previous, trapezoid_defects
from hpfracc.operators.core.values import Finish, Samples, constant, scaled_weights
from hpfracc.operators.rules.differences import DIFFERENCE_ORDER, head_of, increments, start_points

#: Sequences of weights from a namespace, an order and lags.
Maker = Callable[[Namespace, Any, Any], tuple[Any, ...]]


def fractional_part(order: Order) -> Order:
    """``alpha - n + 1`` in (0, 1]: the order that remains after n - 1 ordinary derivatives."""
    whole = order.ceiling - 1
    if whole == 0:
        return order
    known = None if order.known is None else order.known - whole
    return Order(order.value - whole, known, 1, order.xp)


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

    def with_start(self, value: Any, samples: Samples, order: Order) -> Any:
        """``value`` with these points filled in."""
        if not head_of(order)[0]:
            return value
        from hpfracc.operators.rules.first_points import with_start

        return with_start(value, samples, order)


class UniformLType(LType):
    """Those for uniform grids: one causal convolution of the increments."""

    one_call = True

    @staticmethod
    @abstractmethod
    def make(xp: Namespace, beta: Any, n: Any) -> tuple[Any, ...]:
        """The weights of the increments and, perhaps, a row with corrections for the first one."""

    def apply(self, samples: Samples, order: Order) -> Any:
        """One causal convolution of the increments."""
        return self.with_start(self.apply_with_term(samples, order, None, None), samples, order)

    def apply_with_term(self, samples: Samples, order: Order, term: Maker | None, finish: Finish | None) -> Any:
        """The causal convolution; up to order 1 with a ``term``, a sequence times the first sample.

        The input is increments of the derivative of order n - 1. Up to order 1 these are differences of the samples,
        which the convolution computes itself.
        """

        def make_both(xp: Namespace, beta: Any, n: int | Lags) -> tuple[Any, ...]:
            assert term is not None
            weights, *corrections = self.make(xp, beta, n)
            return weights, xp.concatenate([term(xp, beta, n)[0].reshape(1, -1), *corrections], 0)

        def scaled(scheme: Hashable, make: Maker) -> tuple[tuple[Any, ...], Hashable, Any]:
            part = fractional_part(order)
            return scaled_weights(scheme, make, part, samples, -1, whole=order.ceiling - 1, few=True, strict=True)

        if term is None or order.plain:
            # Those of a plain order are cached, and the same with and without the term.
            (weights, *rows), key, factor = scaled(self.name, self.make)
            named = key
            if term is not None:
                (*rows,), named, _ = scaled((self.name, "term"), lambda xp, beta, n: make_both(xp, beta, n)[1:])
        else:
            (weights, *rows), key, factor = scaled((self.name, "term"), make_both)
            named = key
        values = samples.values if order.ceiling <= 1 else increments(samples.values, order.ceiling, self.terms)
        options: dict[str, Any] = {"differences": order.ceiling <= 1}
        if rows:
            options["starts"] = constant(rows[0], samples.values, None if named is None else (named, "starts"))
            options["starts_from"] = 1 if term is None else 0
        return samples.convolve(
            weights, values if factor is None else values * factor, key=key, finish=finish, **options
        )


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


@final
class L12(UniformLType):
    r"""Caputo derivative of a piecewise quadratic interpolant: the default for samples.

    On every interval but the first the quadratic goes through its two ends and the point before:

    .. math::
        D^\alpha f(t_k) \approx \frac{h^{-\beta}}{\Gamma(2-\beta)} \Big[ \sum_{j=1}^{k} a_{k-j}\,\delta_j
        + \sum_{j=2}^{k} b_{k-j}\,(\delta_j - \delta_{j-1}) \Big], \quad \delta_j = g_j - g_{j-1},

    with :math:`a_l` of L1, :math:`b_l = \int_l^{l+1} s^{1-\beta} ds - \tfrac12 (l^{1-\beta} + (l+1)^{1-\beta})`,
    :math:`g = f^{(n-1)}` and :math:`\beta = \alpha - n + 1`. Order :math:`3 - \beta = n + 2 - \alpha` at a fixed t for
    f with n + 2 continuous derivatives; one less at the first point after the origin, where interpolation is linear.
    For f that starts like :math:`t^s` it is :math:`1 + s` at a fixed t, and there is no convergence at the first
    points. Exactly zero on constants. Its difference from L1, with differences of order 3, is a safe
    error estimate, because it is the error of that.
    Above order 1 the first n + 2 points come from the polynomial through the first n + 3 samples, with an error of
    :math:`O(h^{n+3-\alpha})`.

    References
    ----------
    G. Gao, Z. Sun, H. Zhang, J. Comput. Phys. 259 (2014) 33-50.
    """

    name = "l1-2"
    companion = L1Rule().changed(terms=DIFFERENCE_ORDER - 1)

    def accuracy(self, alpha: float) -> float:
        """``n + 2 - alpha``."""
        return math.ceil(alpha) + 2 - alpha

    def measured_from(self, order: Order) -> int:
        """Two, the end of the first quadratic, and ``n + 3`` above order 1."""
        return self.least_points(order)

    @staticmethod
    def make(xp: Namespace, beta: Any, n: int | Lags) -> tuple[Any, Any]:
        """The weights of the increments, and the correction for the first one, where interpolation is linear."""
        scale = xp.rgamma(2.0 - beta)
        line = power_differences(xp, 1.0 - beta, n) * scale
        bend = trapezoid_defects(xp, 1.0 - beta, n) * scale
        last = None if isinstance(n, int) else trapezoid_defects(xp, 1.0 - beta, previous(n)) * scale
        weights, first = with_parabolas(xp, line, bend, last)
        return weights, first.reshape(1, -1)


def with_parabolas(xp: Namespace, means: Any, tilts: Any, before: Any = None) -> tuple[Any, Any]:
    """Weights of the increments for parabolas, and the correction for the first one, where interpolation is linear.

    A parabola adds its kernel's tilt times the difference from the increment before, whose tilts are ``before`` if the
    lags are not consecutive.
    """
    before = xp.concatenate([xp.array([0.0]), tilts[:-1] if before is None else before])
    return means + tilts - before, -before
