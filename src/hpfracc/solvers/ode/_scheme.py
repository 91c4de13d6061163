"""A fixed-step method in the one form that all of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._starting import Powers
from hpfracc.solvers.ode._uniform import UniformGrid, initial_part, row_orders

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
    orders = row_orders(problem)
    distinct, which = np.unique(orders, return_inverse=True)
    n = grid.count
    weights = np.stack(
        [np.stack(scheme.weights(float(alpha), n)) * grid.step ** float(alpha) for alpha in distinct], axis=1
    )
    start = initial_part(problem, grid.elapsed())
    sums = np.repeat(start[None], len(weights), axis=0)
    y = np.empty_like(start)
    y[:, 0] = start[:, 0]
    return Tableau(
        problem,
        grid,
        weights,
        None if len(distinct) == 1 else which.astype(np.int64),
        y,
        np.zeros_like(start),
        sums,
        powers=scheme.powers,
    )
