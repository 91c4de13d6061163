"""A fixed-step method in the one form that all of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._room import check_room
from hpfracc.solvers.ode._starting import Powers
from hpfracc.solvers.ode._uniform import UniformGrid, initial_part, order_groups

__all__ = ["Scheme", "Tableau", "make_tableau"]

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Tableau:
    """Everything that a solve fills in, flat over batch and components.

    Attributes
    ----------
    weights : array, shape (K, U, N + 1)
        For each of U distinct orders; scaled by the step.
    which : array of int or None, shape (rows,)
        The order each row takes; None where all share one.
    y, f : array, shape (rows, N + 1)
        Solution and right-hand side at the steps.
    sums : array, shape (K, rows, N + 1)
        What is known of the sums over the past, initial data included.
    known : int
        Points filled so far, the initial one counted.
    powers : int
        See :class:`Scheme`.
    begins : Powers or None
        Those that the start was made with, where it was made with some.
    stepwise : bool
        Whether every step has to be in here before the next is taken: delayed states are read from it.
    """

    problem: Problem
    grid: UniformGrid
    weights: Array
    which: Array | None
    y: Array
    f: Array
    sums: Array
    known: int = 1
    powers: int = 3
    begins: Powers | None = None
    stepwise: bool = False

    def finite_until(self, first: int, stop: int) -> int:
        """The first of the points ``first .. stop-1`` at which solution or right-hand side is not finite, or stop."""
        y, f = np.isfinite(self.y[:, first:stop]), np.isfinite(self.f[:, first:stop])
        if y.all() and f.all():
            return stop
        return first + int(np.argmin((y & f).all(axis=0)))


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """How a method steps.

    Attributes
    ----------
    kind : str
        ``"explicit"``: ``y_n = S_0[n]``. ``"corrected"``: that, then ``y_n = S_1[n] + w_1[0] f(t_n, y_n)`` so many
        ``corrections`` times. ``"implicit"``: ``y_n = S_0[n] + w_0[0] f(t_n, y_n)``, solved by Newton's method.
    weights : callable
        ``weights(alpha, n)``: for step 1, the K sequences ``w_k[0..n-1]``.
    starts : callable
        ``starts(tableau, evaluate)``: fill in what belongs to the first points.
    corrections : int
        See ``kind``.
    powers : int
        How many of the powers that a solution begins with may be fitted to the first steps: few where those are not
        exact, for the fit magnifies their errors.
    """

    kind: str
    weights: Callable[[float, int], tuple[Array, ...]]
    starts: Callable[[Tableau, Callable[[float, Array], Array]], None]
    corrections: int = 1
    powers: int = 3


def make_tableau(problem: Problem, grid: UniformGrid, scheme: Scheme) -> Tableau:
    """The arrays of a solve, with the contribution of the initial data in every sum."""
    groups = order_groups(problem)
    check_room(problem, grid.count, len(groups))
    start = initial_part(problem, grid.elapsed())
    made = [scheme.weights(alpha, grid.count) for alpha, _ in groups]
    weights = np.empty((len(made[0]), len(groups), grid.count))
    for u, (alpha, _) in enumerate(groups):
        for k, each in enumerate(made[u]):
            np.multiply(each, grid.step**alpha, out=weights[k, u])
    which: Array | None = None
    if len(groups) > 1:
        which = np.zeros(len(start), np.int64)
        for u, (_, mine) in enumerate(groups):
            which[mine] = u
    sums = np.empty((len(weights), *start.shape), start.dtype)
    sums[...] = start
    y = np.empty_like(start)
    y[:, 0] = start[:, 0]
    return Tableau(problem, grid, weights, which, y, np.zeros_like(start), sums, powers=scheme.powers)
