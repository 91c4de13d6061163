"""L1: piecewise linear interpolation under the Caputo derivative."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, final

from hpfracc._xp import Namespace, array_namespace
from hpfracc.engine.execution.api import exponential_recurrence, history_sum
from hpfracc.operators.core.fast_memory import fading_terms, power, refuse_traced_points, steps_of, times_of
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import Rule
from hpfracc.operators.core.sequences import Lags, power_differences, previous, trapezoid_defects
from hpfracc.operators.core.values import Finish, Samples, constant, join, scalar
from hpfracc.operators.core.weights import scaled_weights
from hpfracc.operators.rules.differences import slopes, slopes_at_start
from hpfracc.operators.rules.increments import (
    backward_size,
    first_values,
    head_of,
    increments,
    slope_at_origin,
    start_points,
    whole_at_origin,
)

__all__ = [
    "L12",
    "AnyGridL1",
    "FastL1",
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


def with_start(value: Any, samples: Samples, order: Order, any_grid: bool) -> Any:
    """``value`` with its first points filled in, for orders above 1; see :meth:`Rule.head`."""
    x, n = samples.values, order.ceiling
    if not head_of(order)[0]:
        return value

    def slope() -> Any:
        return slopes_at_start(x, samples.grid.times(), n)[-1] if any_grid else slope_at_origin(samples, order)

    origin = whole_at_origin(array_namespace(x).stop_gradient(x[..., :1]) * 0, slope, order)
    head = first_values(samples, order, n, value, any_grid) if n > 1 else []
    return join([origin, *head, value[..., start_points(n) if head else 1 :]])


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
        return with_start(self.apply_with_term(samples, order, None, None), samples, order, any_grid=False)

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
    points. Exactly zero on constants. Its difference from L1 is a safe error estimate, because it is the error of L1.
    Above order 1 the first n + 2 points come from the polynomial through the first n + 3 samples, with an error of
    :math:`O(h^{n+3-\alpha})`.

    References
    ----------
    G. Gao, Z. Sun, H. Zhang, J. Comput. Phys. 259 (2014) 33-50.
    """

    name = "l1-2"
    companion = L1Rule()

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
        last = bend[:-1] if isinstance(n, int) else trapezoid_defects(xp, 1.0 - beta, previous(n)) * scale
        before = xp.concatenate([xp.array([0.0]), last])
        return line + bend - before, -before.reshape(1, -1)


class _L1(LType):
    """Common part of both rules."""

    any_grid = True
    companion_suffices = False

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The same with a parabola on the newest interval."""
        return _Curved(self)

    def measured_from(self, order: Order) -> int:
        """Above order 1 ``n + 3``."""
        return 0 if order.ceiling <= 1 else start_points(order.ceiling) + 1

    def apply(self, samples: Samples, order: Order) -> Any:
        """The sum over the increments. Above order 1 the first points come from the first samples."""
        refuse_traced_points(samples, order)
        x, n = samples.values, order.ceiling
        g = x if n == 1 else slopes(x, samples.grid.times(), n - 1)
        increments = join([x[..., :1] - x[..., :1], g[..., 1:] - g[..., :-1]])
        return with_start(self._sum(samples, order, increments), samples, order, any_grid=True)

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        raise NotImplementedError


@final
class AnyGridL1(_L1):
    r"""Caputo derivative of the piecewise linear interpolant, on any increasing grid.

    .. math::
        D^\alpha f(t_i) \approx \frac{1}{\Gamma(1-\beta)} \sum_{k=1}^{i} \frac{g_k - g_{k-1}}{t_k - t_{k-1}}
        \int_{t_{k-1}}^{t_k} (t_i - s)^{-\beta} ds,

    with :math:`g = f^{(n-1)}` (by differences of order 4 where :math:`n = \lceil\alpha\rceil > 1`) and
    :math:`\beta = \alpha - n + 1`. Order :math:`n + 1 - \alpha` in the largest step at a fixed t, for smooth f. On the
    graded grid :math:`t_j = T (j/N)^r` and for f that starts like :math:`t^s`, the error times
    :math:`t^\alpha` is :math:`O(N^{-\min(2-\alpha, rs)})` at every point, for :math:`0 < \alpha < 1`. Exactly zero on
    constants. The cost is one weight per pair of points.

    References
    ----------
    M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079.
    """

    name = "l1"
    cost = "O(n^2)"

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        part = fractional_part(order)
        with order.xp.scope():
            factor = order.guard(order.xp.rgamma(2.0 - part.value))
        # Scaled, because the plain mean is infinite at fractional part 1, which a differentiable integer order has.
        total = history_sum(
            times_of(samples), increments, -part.value, kernel="power", scaled=True, backend=samples.backend
        )
        return total * scalar(factor, samples.values)


@final
class FastL1(_L1):
    r"""The same sum with the kernel :math:`r^{-\beta}` as a sum of exponentials, except on the newest interval.

    :math:`O(\log(T/\tau) \log(1/\epsilon))` states replace the history, where :math:`\tau` is the smallest
    step. The relative error of the kernel is ``rtol`` (1e-10 by default), so the result differs from the direct sum by
    at most ``rtol`` times the sum of the absolute increments.

    References
    ----------
    S. Jiang, J. Zhang, Q. Zhang, Z. Zhang, Commun. Comput. Phys. 21 (2017) 650-678.
    """

    name = "fast"
    cost = "O(n log n)"

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        x, part = samples.values, fractional_part(order)
        steps, widths = steps_of(samples)
        with part.xp.scope():
            rates, weights = fading_terms(samples, part, part.value)
            newest = power(widths, -part.value, part) * order.guard(order.xp.rgamma(2.0 - part.value))
            factor = order.guard(order.xp.rgamma(1.0 - part.value))
        past = exponential_recurrence(
            rates, weights, steps, increments[..., 1:], degree=0, lagged=True, backend=samples.backend
        )
        tail = past * scalar(factor, x) + increments[..., 1:] * constant(newest, x)
        return join([x[..., :1] * 0, tail])


@final
class _Curved(_L1):
    r"""A rule plus the term of the parabola through the last three points, on the newest interval.

    .. math:: \frac{\beta\, \tau_i^{2-\beta}}{\Gamma(3-\beta)}\, g[t_{i-2}, t_{i-1}, t_i],
        \quad \tau_i = t_i - t_{i-1}.

    This is the leading error of L1 for smooth f. At a kink between two points it has the size of the error that the
    samples do not determine: every other sample may see none of it.
    """

    companion = None

    def __init__(self, rule: _L1) -> None:
        self.rule = rule
        self.name = rule.name  # type: ignore[misc]

    def _sum(self, samples: Samples, order: Order, increments: Any) -> Any:
        x, part = samples.values, fractional_part(order)
        total = self.rule._sum(samples, order, increments)
        _, widths = steps_of(samples)
        with part.xp.scope():
            size = part.value * part.xp.rgamma(3.0 - part.value)
            effect = constant(power(widths[1:], 2.0 - part.value, part) * size, x)
        steps = constant(widths, x)
        rates = increments[..., 1:] / steps
        term = (rates[..., 1:] - rates[..., :-1]) / (steps[1:] + steps[:-1]) * effect
        return join([total[..., :2], total[..., 2:] + term])
