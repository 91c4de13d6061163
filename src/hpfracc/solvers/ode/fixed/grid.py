"""The grid of a solve with given steps, and the contribution of the initial data on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import rgamma

from hpfracc._reading import numbers
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.selection.call_memory import NEGLIGIBLE_BYTES
from hpfracc.errors import InvalidInputError, OutOfMemoryError
from hpfracc.solvers.ode.problem import Problem

Array = np.ndarray[Any, Any]

#: A step that divides the interval up to this relative error is used as given.
_FITS = 1e-6
#: Maximum number of steps that any method solves together.
_FIRST = 16
#: Number of arrays of a fixed-step solve with an element for every step and component: the solution, the right-hand
#: side, the history sums, and the contribution of the initial data.
_FULL_ARRAYS = 4
#: What to do if memory runs out.
REMEDY = "use a larger step or tolerance, a shorter interval, or fewer members of the batch; or free memory"
#: Integers up to this one are exact in float64.
_MAX_STEPS = 2.0**53


@dataclass(frozen=True, slots=True)
class UniformGrid:
    """``t_n = t0 + n step`` for n = 0 .. steps, of which only the first ``count`` are stored.

    With a ``grading`` r, ``t_n = t0 + T (n / steps)^r``.
    """

    t0: float
    t1: float
    steps: int
    count: int
    grading: float = 1.0

    @property
    def step(self) -> float:
        """The step that divides the interval: the mean of a graded grid."""
        return (self.t1 - self.t0) / self.steps

    @property
    def longest(self) -> float:
        """The longest step: the last one."""
        return (self.t1 - self.t0) * (1.0 - math.pow(1.0 - 1.0 / self.steps, self.grading))

    def elapsed(self, first: int = 0, stop: int | None = None) -> Array:
        """``t_n - t0``, without the rounding of ``t0``."""
        stop = self.count if stop is None else stop
        return (self.t1 - self.t0) * (np.arange(first, stop) / self.steps) ** self.grading

    def time(self, n: int) -> float:
        """The time ``t_n``."""
        return self.t0 + (self.t1 - self.t0) * math.pow(n / self.steps, self.grading)

    def place(self, elapsed: Array) -> Array:
        """The n, not rounded, at which so much time has elapsed."""
        return np.asarray(self.steps * (elapsed / (self.t1 - self.t0)) ** (1.0 / self.grading))

    def times(self) -> Array:
        """The stored ``t_n``; the last of all is exactly t1."""
        times = self.t0 + self.elapsed()
        if self.count == self.steps + 1:
            times[-1] = self.t1
        return times


def make_grid(t0: float, t1: float, step: float, most: int | None = None, grading: float = 1.0) -> UniformGrid:
    """The grid of the largest step not above ``step`` that divides ``[t0, t1]``; limited to ``most`` steps."""
    ratio = (t1 - t0) / step
    if not ratio <= _MAX_STEPS:
        what = f"step={step:g} divides an interval of length {t1 - t0:g} into {ratio:.3g} steps"
        raise InvalidInputError(f"{what}, more than {_MAX_STEPS:g}; take a larger step")
    steps = round(ratio) if abs(ratio - round(ratio)) <= _FITS else math.ceil(ratio)
    steps = max(1, steps)
    # A method that solves its first steps together needs all of them.
    return UniformGrid(t0, t1, steps, 1 + (steps if most is None else min(steps, max(most, _FIRST))), grading)


def least_bytes(problem: Problem, points: int, orders: int = 1, arrays: int = _FULL_ARRAYS) -> int:
    """Memory of ``arrays`` with every component at every point, and of weights for each of the distinct orders."""
    item = 16 if problem.library == "numpy" and np.iscomplexobj(problem.y0) else 8
    return points * (arrays * math.prod(problem.shape) * item + 8 * orders)


def check_room(problem: Problem, count: int, orders: int, *, arrays: int = _FULL_ARRAYS) -> None:
    """Raise :class:`OutOfMemoryError` if the arrays of a solve at ``count`` points are larger than what is free."""
    need = least_bytes(problem, count, orders, arrays)
    free = None if need < NEGLIGIBLE_BYTES else get_budget().free(HOST)
    if free is not None and need > free:
        what = f"solve_fode: {count:,} points of {math.prod(problem.shape):,} components"
        sizes = f"need at least {need / 2**20:,.1f} MiB, and {free / 2**20:,.1f} MiB are free"
        raise OutOfMemoryError(f"{what} {sizes}; {REMEDY}")


def times_within(t: Any, t_min: float, t_max: float) -> Array:
    """The times at which a solution from ``t_min`` to ``t_max`` is asked for; raises an error if they are outside."""
    times = numbers("t", t, finite=False)
    slack = 1e-12 * max(abs(t_min), abs(t_max))
    if times.size and not (times.min() >= t_min - slack and times.max() <= t_max + slack):
        asked = f"{float(times.min()):g} to {float(times.max()):g}"
        raise InvalidInputError(f"the solution is known from {t_min:g} to {t_max:g}, not at {asked}; give other times")
    return times


def row_orders(problem: Problem) -> Array:
    """The order of each component of each member of the batch, flat."""
    assert problem.orders.known is not None
    return np.broadcast_to(problem.orders.known, problem.shape).reshape(-1)


def order_groups(problem: Problem) -> list[tuple[float, Array | slice]]:
    """Distinct orders in increasing order, and the rows of each; a full slice if there is only one."""
    single = problem.orders.single
    if single is not None:
        return [(single, slice(None))]
    orders = row_orders(problem)
    return [(float(order), orders == order) for order in np.unique(orders)]


def initial_polynomial(tau: Any, initial: Sequence[Any]) -> Any:
    """The polynomial of the initial values, arrays of any library, at a time after t0."""
    total = initial[0]
    for number, value in enumerate(initial[1:], start=1):
        total = total + value * (tau**number / math.factorial(number))
    return total


def initial_part(problem: Problem, elapsed: Array) -> Array:
    r"""The solution of ``D^alpha y = 0`` with the initial data, shape (rows, len(elapsed)).

    Caputo: :math:`\sum_k y^{(k)}(t_0) \tau^k / k!`. Riemann-Liouville: :math:`\sum_{k<n} b_k \tau^{\alpha-n+k} /
    \Gamma(\alpha-n+k+1)` with ``b_0 = y0`` and the rest from ``dy0``; at the origin it is infinite if a
    negative power has a coefficient.
    """
    data = [np.asarray(each).reshape(-1, 1) for each in (problem.y0, *problem.dy0)]
    total = np.zeros((len(data[0]), len(elapsed)), problem.dtype)
    for order, mine in order_groups(problem):
        whole = math.ceil(order)
        for k in range(whole):
            power = float(k) if problem.derivative == "caputo" else order - whole + k
            value = data[k][mine]
            if power == 0.0:
                total[mine] += value
                continue
            with np.errstate(divide="ignore"):  # negative powers are infinite at 0, where they have a coefficient
                powers = np.asarray(elapsed**power)
            if power < 0.0 and not np.any(value):
                powers[elapsed == 0.0] = 0.0
            total[mine] += value * powers * rgamma(power + 1.0)
    return total
