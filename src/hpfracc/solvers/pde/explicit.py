"""The part of the equation that methods of order 1 in time treat explicitly: reaction, source and boundary data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpfracc.solvers.pde.problem import EvolutionProblem, order_value

__all__ = ["ExplicitPart", "needs_order_one", "time_steps"]

Array = np.ndarray[Any, Any]


class ExplicitPart:
    """``N(t, u) = reaction(t, u) + source(t) + b(t)``; None where all of them are absent.

    Parameters
    ----------
    problem : EvolutionProblem
        The equation.
    """

    def __init__(self, problem: EvolutionProblem) -> None:
        self.problem = problem

    @property
    def empty(self) -> bool:
        """Whether N is zero."""
        return self.problem.linear and not self.problem.forced

    def __call__(self, t: Any, u: Any) -> Any:
        """Evaluate N at a time and state."""
        problem = self.problem
        total = problem.known(t)
        if problem.reaction is not None:
            own = problem.reaction(t, u)
            total = own if total is None else total + own
        if total is None:
            return 0.0 * u
        return total if total.shape == u.shape else total + 0.0 * u


def needs_order_one(name: str, problem: EvolutionProblem) -> str | None:
    """Why a method for ``u_t = ...`` cannot solve this equation; None if it can."""
    if len(problem.orders) > 1:
        return f"method={name!r} takes one derivative in time, and the equation has {len(problem.orders)}; use 'l1'"
    alpha = order_value(problem.alpha)
    if alpha != 1.0:
        return f"method={name!r} is for alpha = 1, and alpha = {alpha:g}; use method='auto'"
    return None


def time_steps(mesh: Array) -> Iterator[tuple[float, float]]:
    """The start and length of each step.

    The steps of a uniform mesh differ by rounding. All of them are given the length of the first, so that coefficients
    that depend on the length are computed once.
    """
    last = math.nan
    for before, after in itertools.pairwise(mesh):
        h = float(after - before)
        if not abs(h - last) <= 1e-10 * h:
            last = h
        yield float(before), last
