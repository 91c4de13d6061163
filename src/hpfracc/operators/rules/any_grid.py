"""Rules for any increasing grid: each weight computed where it is used, or the kernel as a sum of exponentials."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, final

import numpy as np

from hpfracc._arrays import library_of, to_host
from hpfracc._xp import NUMPY, array_namespace, namespace_of, of_variables
from hpfracc.engine.execution.api import exponential_recurrence, history_sum
from hpfracc.errors import InvalidInputError
from hpfracc.history.exponentials import exponential_nodes, exponential_sum, node_weights
from hpfracc.operators.core.order import Order
from hpfracc.operators.core.rule import DelegatingRule, Rule
from hpfracc.operators.core.values import Samples, add_from, constant, join, namespace_among, scalar
from hpfracc.operators.rules.differences import slopes, start_points
from hpfracc.operators.rules.first_points import infinite_at_origin
from hpfracc.operators.rules.l1 import LType, fractional_part

#: Default relative error of the kernel.
FAST_RTOL = 1e-10
#: Range of powers for a traced order, whose value is unknown.
_TRACED = (0.02, 1.0)


def times_of(samples: Samples) -> Any:
    """The points, with their gradient if they carry one."""
    grid = samples.grid
    return grid.times() if grid.traced is None else grid.traced


def reach_of(samples: Samples) -> Any:
    """The distances from the origin of all later points, with their gradient."""
    times = times_of(samples)
    return times[1:] - times[0]


def power(base: Any, exponent: Any, order: Order) -> Any:
    """``base ** exponent`` of positive numbers, both of which may carry a gradient; in double precision."""
    if library_of(base) == "torch":
        return base.double() ** exponent
    if library_of(base) == "jax":
        return base.astype("float64") ** exponent
    return order.xp.power(base, exponent)


def refuse_traced_points(samples: Samples, order: Order) -> None:
    """Raise an error if the gradient with respect to the points would be incomplete."""
    if samples.grid.traced is not None and order.ceiling > 1:
        raise InvalidInputError(
            f"t carries a gradient, which orders above 1 do not support on this grid (alpha={order.known}); "
            "detach t, or use an order of at most 1"
        )


def steps_of(samples: Samples) -> tuple[Any, Any]:
    """The steps as used by a recurrence (one number on a uniform grid), and each step separately."""
    grid = samples.grid
    if grid.traced is not None:
        widths = grid.traced[1:] - grid.traced[:-1]
        return widths, widths
    widths = np.diff(grid.times())
    if grid.uniform and np.ndim(grid.step) == 0 and isinstance(grid.step, float):
        return grid.step, np.full(grid.n - 1, grid.step)
    return widths, widths


def fading_terms(samples: Samples, order: Order, beta: Any) -> tuple[Any, Any]:
    """Rates and weights of ``r**-beta`` for all distances on the grid, where ``beta`` depends on ``order``.

    A plain order has few terms; one that carries a gradient has more, at nodes that do not depend on it.
    """
    points = samples.grid.times()
    shortest, longest = float(np.diff(points).min()), float(points[-1] - points[0])
    rtol = FAST_RTOL if samples.rtol is None else samples.rtol
    if order.plain:
        found = exponential_sum(float(beta), shortest, longest, rtol)
        return found.rates, found.weights
    least, most = _TRACED if order.known is None else (known := float(to_host(beta)), known)
    nodes = exponential_nodes(least, most, shortest, longest, rtol)
    weights = of_variables(order.xp, lambda beta: node_weights(order.xp, beta, nodes))(beta)
    if order.known is None:
        weights = order.xp.where((beta >= least) & (beta <= most), weights, math.nan)
    return nodes.rates, weights


class AnyGridRule(LType):
    """A rule for the piecewise linear interpolant on any grid, of a derivative or of an integral."""

    any_grid = True
    companion_suffices = False
    #: Whether it integrates, and the rate at which its kernel decays, None without decay.
    integral: bool = False
    rate: Any = None

    @property
    def companion(self) -> Rule | None:  # type: ignore[override]
        """The same with a parabola on the newest interval."""
        return _Curved(self)

    def accuracy(self, alpha: float) -> float:
        """``n + 1 - alpha``, or 2 for an integral."""
        return 2.0 if self.integral else super().accuracy(alpha)

    def least_points(self, order: Order) -> int:
        """Two, and ``n + 3`` for derivatives above order 1."""
        return 2 if self.integral else super().least_points(order)

    def head(self, order: Order) -> tuple[int, int]:
        """That of L-type rules; no points for an integral."""
        return (0, 0) if self.integral else super().head(order)

    def measured_from(self, order: Order) -> int:
        """For derivatives above order 1 ``n + 3``."""
        return 0 if self.integral or order.ceiling <= 1 else start_points(order.ceiling) + 1

    def exponent(self, order: Order) -> Any:
        """The power of the distance that is the kernel, times a Gamma function."""
        return order.value if self.integral else -fractional_part(order).value

    def interpolated(self, samples: Samples, order: Order) -> Any:
        """g: f, or its derivative of order n - 1."""
        whole = 0 if self.integral else order.ceiling - 1
        return slopes(samples.values, samples.grid.times(), whole, self.terms) if whole else samples.values

    def increments(self, samples: Samples, order: Order) -> Any:
        """``g[k] - exp(-rate h[k]) g[k-1]``, 0 at the first point."""
        g = self.interpolated(samples, order)
        return join([g[..., :1] - g[..., :1], g[..., 1:] - self.decayed(g[..., :-1], samples, 1)])

    def decayed(self, values: Any, samples: Samples, first: int) -> Any:
        """``values``, the first of which belongs to interval ``first``, times the decay over their intervals."""
        if self.rate is None or (namespace_of(self.rate) is NUMPY and float(self.rate) == 0.0):
            return values
        times = times_of(samples)[first - 1 :]
        xp = namespace_among(self.rate, times)
        with xp.scope():
            return constant(xp.exp(-xp.array(self.rate) * xp.array(times[1:] - times[:-1])), values) * values


@final
class PiecewiseLinear(AnyGridRule):
    r"""An operator of the piecewise linear interpolant of :math:`e^{\lambda t} f`, on any increasing grid.

    .. math::
        D^{\alpha,\lambda} f(t_i) \approx \frac{1}{\Gamma(1-\beta)} \Big[ \sum_{k=1}^{i} e^{-\lambda(t_i-t_k)}
        \big(g_k - e^{-\lambda h_k} g_{k-1}\big) \frac{1}{h_k} \int_{t_{k-1}}^{t_k} (t_i-s)^{-\beta}\,ds
        + e^{-\lambda(t_i-t_0)} (t_i-t_0)^{-\beta} g_0 \Big],

    with :math:`g = f^{(n-1)}` (by differences of order 4 where :math:`n = \lceil\alpha\rceil > 1`) and
    :math:`\beta = \alpha - n + 1`; without the last term in the Caputo sense, which is L1. With :math:`-\mu` in place
    of :math:`\beta` it is the integral, the product trapezoid summed by parts. Order :math:`n + 1 - \alpha` in the
    largest step at a fixed t for derivatives, 2 for integrals, for f smooth on the scale of 1/rate. On the graded grid
    :math:`t_j = T (j/N)^r` and for f that starts like :math:`t^s`, the error of L1 times :math:`t^\alpha` is
    :math:`O(N^{-\min(2-\alpha, rs)})` at every point, for :math:`0 < \alpha < 1`. Caputo's is exactly zero on
    constants. The cost is one weight per pair of points.

    References
    ----------
    M. Stynes, E. O'Riordan, J. L. Gracia, SIAM J. Numer. Anal. 55 (2017) 1057-1079; F. Sabzikar, M. M. Meerschaert, J.
    Chen, J. Comput. Phys. 293 (2015) 14-28 (tempered).
    """

    cost = "O(n^2)"

    def __init__(self, rate: Any = None, *, integral: bool = False, initial_term: bool = False) -> None:
        self.rate = rate
        self.integral = integral
        self.initial_term = initial_term

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"l1"``, or ``"trapezoid"`` for the integral."""
        return "trapezoid" if self.integral else "l1"

    def check(self, samples: Samples, order: Order, who: str) -> None:
        """Raise an error for derivatives of order above 1 with a decay too."""
        super().check(samples, order, who)
        if self.rate is not None and not self.integral and order.ceiling > 1:
            raise InvalidInputError(
                f"{who} of order {order.known if order.known is not None else 'above 1'} needs a uniform grid; on any "
                "other it takes orders up to 1: interpolate the samples onto np.linspace first"
            )

    def apply(self, samples: Samples, order: Order) -> Any:
        """One history sum over the increments of the interpolant."""
        if not self.integral:
            refuse_traced_points(samples, order)
        x, times, exponent = samples.values, times_of(samples), self.exponent(order)
        guard = order.guard_integral if self.integral else order.guard
        parameters: tuple[Any, ...] = (exponent,)
        if self.rate is not None:
            xp = namespace_among(order.value, self.rate, times)
            with xp.scope():
                parameters = xp.array(exponent), xp.array(self.rate)
        # Scaled, because the plain mean is infinite at fractional part 1, which a differentiable integer order has.
        total = history_sum(
            times,
            self.increments(samples, order),
            *parameters,
            kernel="power" if self.rate is None else "tempered",
            scaled=True,
            backend=samples.backend,
        )
        with order.xp.scope():
            factor = guard(order.xp.rgamma(2.0 + exponent))
        value = total * scalar(factor, x)
        if not (self.integral or self.initial_term):
            return self.with_start(value, samples, order)
        reach = reach_of(samples)
        with order.xp.scope():
            start = power(reach, exponent, order) * guard(order.xp.rgamma(1.0 + exponent))
        if self.rate is not None:
            with xp.scope():
                start = xp.array(start) * xp.exp(-xp.array(self.rate) * xp.array(reach))
        first = infinite_at_origin(x[..., :1], order, []) if self.initial_term else value[..., :1]
        return join([first, value[..., 1:] + x[..., :1] * constant(start, x)])


@final
class _Curved(DelegatingRule):
    r"""A rule plus the term of the parabola through the last three points, on the newest interval.

    .. math:: \frac{\beta\, \tau_i^{2-\beta}}{\Gamma(3-\beta)}\, g[t_{i-2}, t_{i-1}, t_i],
        \quad \tau_i = t_i - t_{i-1},

    with :math:`\beta = -\mu` for an integral. This is the leading error of L1 for smooth f. At a kink between two
    points it has the size of the error that the samples do not determine. The rule gets one more value of g in every
    interval much longer than the next one, whose error every other sample does not show, and differences of order 3.
    """

    rule: AnyGridRule
    companion = None

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self.terms = rule.terms - 1

    def apply(self, samples: Samples, order: Order) -> Any:
        """The rule, plus one product."""
        x, rule = samples.values, self.rule
        widths, beta = steps_of(samples)[1], -rule.exponent(order)
        with order.xp.scope():
            effect = constant(power(widths[1:], 2.0 - beta, order) * (beta * order.xp.rgamma(3.0 - beta)), x)
        steps = constant(widths, x)
        rates = rule.increments(samples, order)[..., 1:] / steps
        bend = (rates[..., 1:] - rule.decayed(rates[..., :-1], samples, 2)) / (steps[1:] + steps[:-1])
        above = not rule.integral and order.ceiling > 1
        rule = rule.changed(terms=self.terms)
        inner = replace(samples, values=rule.interpolated(samples, order), recorded=None) if above else samples
        finer, places = _with_middles(inner)
        value = rule.apply(finer, fractional_part(order) if above else order)[..., places]
        return add_from(rule.with_start(value, samples, order) if above else value, 2, bend * effect)


#: An interval this many times as long as the one with which every other sample joins it is halved for the estimate:
#: its error grows by at most (1 + 1/4)^3 when they are joined.
_LONG = 4.0


def _with_middles(samples: Samples) -> tuple[Samples, list[int]]:
    """The samples and those in the middle of long intervals, bent like the parabolas of their ends; old places."""
    x, times = samples.values, samples.grid.times()
    widths = np.diff(times)
    pairs = widths[: len(widths) // 2 * 2].reshape(-1, 2)
    long = np.flatnonzero(pairs > _LONG * pairs[:, ::-1])
    if not len(long) or samples.n < 3 or samples.grid.traced is not None:
        return samples, list(range(samples.n))
    places = np.concatenate([times, 0.5 * (times[long] + times[long + 1])])
    turn = np.argsort(places, kind="stable")
    rates = (x[..., 1:] - x[..., :-1]) / constant(widths, x)
    bends = (rates[..., 1:] - rates[..., :-1]) / constant(widths[1:] + widths[:-1], x)
    before, after = np.maximum(long - 1, 0).tolist(), np.minimum(long, samples.n - 3).tolist()
    # Twice as far from the line: on it their halves would have a quarter of the error, and parabolas miss some of it.
    bend = (bends[..., before] + bends[..., after]) * constant(0.25 * widths[long] ** 2, x)
    middle = 0.5 * (x[..., long.tolist()] + x[..., (long + 1).tolist()]) - bend
    grid = replace(samples.grid, n=len(places), step=None, points=places[turn])
    values = join([x, middle])[..., turn.tolist()]
    return replace(samples, values=values, grid=grid, recorded=None), np.argsort(turn)[: samples.n].tolist()


#: Maximum number of ordinary integrals that the fast rule takes first. More would need polynomials of higher degree.
_MAX_WHOLE = 3


@final
class FastPiecewiseLinear(AnyGridRule):
    r"""The same without decay, with the kernel as a sum of exponentials, except on the newest interval.

    :math:`O(\log(T/\tau) \log(1/\epsilon))` states replace the history, where :math:`\tau` is the smallest step. The
    relative error of the kernel is ``rtol`` (1e-10 by default), so L1 differs from the direct sum by at most ``rtol``
    times the sum of the absolute increments. The integer part m of an integral's order :math:`\mu` is integrated first,
    exactly, interval by interval, and the kernel :math:`r^{\mu-m-1}` is applied to the resulting piecewise polynomial;
    for L1 it is applied to the piecewise constant derivative.

    References
    ----------
    S. Jiang, J. Zhang, Q. Zhang, Z. Zhang, Commun. Comput. Phys. 21 (2017) 650-678.
    """

    name = "fast"
    cost = "O(n log n)"

    def __init__(self, *, integral: bool = False) -> None:
        self.integral = integral

    def apply(self, samples: Samples, order: Order) -> Any:
        """Integrals of integer order, then one recurrence for each power of the piecewise polynomial."""
        whole = -1 if not self.integral else 0 if order.known is None else math.floor(order.known)
        if whole > _MAX_WHOLE:
            raise InvalidInputError(
                f"alpha={order.known:g}: the fast integral supports orders below {_MAX_WHOLE + 1}; "
                "use method='trapezoid', or integrate twice"
            )
        if not self.integral:
            refuse_traced_points(samples, order)
        x, xp = self.interpolated(samples, order), order.xp
        steps, widths = steps_of(samples)
        tau = constant(widths, x)
        rise = x[..., 1:] - x[..., :-1]
        integrals = [x]
        for r in range(1, whole + 1):
            gain = rise * tau**r / math.factorial(r + 1)
            for d in range(1, r + 1):
                gain = gain + integrals[r - d][..., :-1] * tau**d / math.factorial(d)
            integrals.append(join([x[..., :1] * 0, array_namespace(gain).cumsum(gain, -1)]))
        if self.integral and order.known == whole:
            if not order.plain:
                raise InvalidInputError(
                    f"alpha={order.known:g} is differentiable, but the fast integral of integer order is not; "
                    "use method='trapezoid', or give a number"
                )
            return integrals[whole]
        # On each interval sum_d c_d u^d, u from 0 to 1.
        powers = [integrals[whole - d][..., :-1] * tau**d / math.factorial(d) for d in range(whole + 1)]
        powers.append(rise * tau**whole / math.factorial(whole + 1))
        nu = self.exponent(order) - float(whole)
        guard = order.guard_integral if self.integral else order.guard
        with xp.scope():
            rates, weights = fading_terms(samples, order, 1.0 - nu)
            factor, newest = guard(xp.rgamma(nu)), power(widths, nu, order)
            shares = [newest * guard(math.factorial(d) * xp.rgamma(nu + d + 1.0)) for d in range(whole + 2)]
        total: Any = 0.0
        for d, (part, share) in enumerate(zip(powers, shares, strict=True)):
            past = exponential_recurrence(
                rates, weights, steps, part * tau, degree=d, lagged=True, backend=samples.backend
            )
            total = total + past * scalar(factor, x) + part * constant(share, x)
        value = join([x[..., :1] * 0, total])
        return value if self.integral else self.with_start(value, samples, order)
