"""The start: the powers of t - t0 in a solution, and what the right-hand side says of those that are infinite there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode.fixed.grid import initial_part, row_orders
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.stepping.jumps import negative_powers, sample_near_start
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]

#: Earliest time after t0. An earlier one would leave no room for the steps before it.
EARLIEST = 1e-270
#: A multiple of the solution's power that is closer than this to an integer counts as one: f is a polynomial of y.
_WHOLE = 0.02


#: Powers closer than this count as one; the error is then of order 2 minus this.
_CLOSE = 0.02


@dataclass(frozen=True, slots=True)
class Powers:
    """The powers of t - t0 that are integrated exactly, and the first step whose value is used."""

    exponents: tuple[float, ...]
    first: int

    @property
    def last(self) -> int:
        """The last step whose value is used; all steps up to it are solved together."""
        return self.first + len(self.exponents) - 1


class GrowthError(Exception):
    """The right-hand side does not behave like an integrable power of t - t0."""


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """``|f(t, T(t))|`` is about ``size (t - t0)^power`` near t0, T from the initial data; ``power > -1``."""

    power: float
    size: float

    def negligible(self, share: float, data: float) -> float:
        """The time after t0 up to which f adds less than ``share`` to initial data of size ``data``."""
        if self.size == 0.0:
            return math.inf
        exponent = 1.0 + self.power
        return math.exp(max(math.log(share * data * exponent / self.size) / exponent, -700.0))


def _laws(problem: Problem) -> tuple[Array, Array, float, bool] | None:
    """Negative powers of ``|f|`` near t0, its values at a time after t0, that time, and whether the powers are steady.

    None if the right-hand side is not finite there, or grows faster than any power.
    """

    def size(tau: float) -> Array:
        state = initial_part(problem, np.array([tau])).T[0]
        found = np.abs(problem.evaluate(problem.t0 + tau, state.reshape(problem.shape))).reshape(-1)
        return np.where(np.isfinite(state).all(), found, np.nan)

    near = sample_near_start(size, problem.t1 - problem.t0)
    if near is None:
        return None
    times, values = near
    powers, steady = negative_powers(values, times)
    return powers, np.where(np.all(values > 0.0, axis=1), values[:, -1], 0.0), float(times[-1]), steady


def read_growth(problem: Problem) -> PowerLaw:
    """Sample the right-hand side near the start; raises :class:`GrowthError` if it is not a power law."""
    infinite = "near t0, where the solution of this Riemann-Liouville problem is infinite"
    remedy = "give y0 = 0, or another right-hand side"
    found = _laws(problem)
    if found is None:
        raise GrowthError(f"the right-hand side is not finite, or grows faster than any power, {infinite}; {remedy}")
    powers, values, time, steady = found
    if not steady:
        raise GrowthError(f"the right-hand side does not behave like a power of t - t0 {infinite}; {remedy}")
    power = float(powers.min())
    if power <= -1.0 + 1e-6:
        what = f"near t0 the right-hand side grows like (t - t0)^{power:.3g}, which has no integral"
        raise GrowthError(f"{what}: with this y0 there is no solution; {remedy} that grows more slowly with y")
    return PowerLaw(power, float(values.max()) * time**-power)


def source_start(problem: Problem, options: Options) -> float:
    r"""Time after t0 before which a source that is infinite at t0 adds less than a thousandth of the tolerance to y.

    A source like :math:`c\,(t-t_0)^p` adds :math:`I^\alpha` of it, :math:`(t-t_0)^{\alpha+p}` times a constant. Raises
    :class:`GrowthError` if that is not finite at t0, or is not to be seen.
    """
    where = f"the right-hand side is not finite at t0 = {problem.t0:g}"
    if problem.t0 != 0.0:
        raise GrowthError(f"{where}, and times close to it are rounded; write the equation in s = t - t0, from s = 0")
    found = _laws(problem)
    if found is None:
        raise GrowthError(f"{where}, nor close behind it; check the right-hand side and the initial values")
    powers, values, time, steady = found
    orders, length = row_orders(problem), problem.t1 - problem.t0
    exponents = np.minimum(orders, 1.0) + powers
    if not steady or exponents.min() < 1e-2:
        what = f"{where}, and grows there like (t - t0)^{float(powers.min()):.3g}"
        raise GrowthError(f"{what}, so that y would not start from y0; it has to grow less than (t - t0)^-alpha")
    sizes = values * time**-powers * max(length, 1.0) ** np.maximum(orders - 1.0, 0.0)
    allowed = 1e-3 * (np.asarray(options.atol) + options.rtol * np.abs(problem.y0)).reshape(-1)
    with np.errstate(divide="ignore"):
        logs = np.log(allowed * exponents / sizes) / exponents
    start = math.exp(min(float(logs.min()), math.log(min(1e-6, 1e-3 * options.rtol) * length)))
    if start < EARLIEST:
        raise GrowthError(f"{where}, and steps would have to start within {EARLIEST:g} of it; loosen rtol or atol")
    return start


def singular_powers(problem: Problem, growth: PowerLaw, bound: float) -> set[float]:
    """Powers below ``bound`` in the expansion of ``f(t, y(t))`` near t0.

    The solution starts with the powers of its initial data. Each power of f occurs in the solution again, increased by
    the order. The number of factors in products of these powers follows from the growth of f: all products if f grows
    like a polynomial of y, and the leading ones otherwise.
    """
    assert problem.orders.known is not None
    orders = np.unique(problem.orders.known).tolist()
    bases = sorted({order - math.ceil(order) + k for order in orders for k in range(math.ceil(order))})
    lowest = bases[0]
    degree = max(1.0, growth.power / lowest) if lowest < 0.0 else 1.0
    found = {0.0}
    if abs(degree - round(degree)) < _WHOLE * max(1.0, degree):
        for count in range(1, round(degree) + 1):
            found |= {sum(each) for each in itertools.combinations_with_replacement(bases, count)}
    else:
        found |= {*bases, *((degree - k) * lowest for k in range(math.ceil(degree)))}
    if growth.power < 0.0 and min(abs(power - growth.power) for power in found) > _WHOLE:
        found.add(growth.power)  # of t itself, not of y
    steps = {math.ceil(order) for order in orders}
    return _sums(found, lambda found: {1.0, *(step + power for step in steps for power in found)}, bound)


def _sums(found: set[float], rises: Callable[[set[float]], set[float]], bound: float) -> set[float]:
    """The powers below ``bound``, and those that follow from them by ``rises`` of some of them."""
    found = {round(power, 12) for power in found if power < bound}
    grown = True
    while grown and len(found) < 64:
        by = [rise for rise in rises(found) if rise > 1e-9]
        more = {round(power + rise, 12) for power in found for rise in by if power + rise < bound}
        grown = not more <= found
        found |= more
    return found


def starting_powers(problem: Problem, bound: float = 1.0) -> Powers:
    """Powers up to ``bound`` of ``f(t, y(t))`` near t0: products of 1, t, and t^alpha for every order.

    If the solution is infinite at t0, they are determined from the right-hand side, which may raise
    :class:`GrowthError`.
    """
    assert problem.orders.known is not None
    infinite = starts_infinite(problem)
    if infinite:
        found = singular_powers(problem, read_growth(problem), bound)
    else:
        orders = {1.0, *problem.orders.known.reshape(-1).tolist()}
        found = _sums({0.0}, lambda _: orders, bound)
    kept: list[float] = []
    for power in sorted(found):
        if power < bound - _CLOSE and (not kept or power - kept[-1] > _CLOSE):
            kept.append(power)
    return Powers((*kept, bound), 1 if infinite else 0)
