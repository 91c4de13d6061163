"""What the adapters of libraries with fixed steps share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from testset.data import NotExpressible, Problem
from testset.expressions import NUMBERS, function

#: The most steps.
MOST = 4_000


def steps_for(problem: Problem, tolerance: float) -> int:
    """Steps that a method of second order would need; a multiple of 100, so that most times are met."""
    return 100 * int(np.clip(round(0.02 / tolerance**0.5), 1, MOST // 100))


def simple_equation(
    problem: Problem, library: dict[str, Any] = NUMBERS
) -> tuple[Callable[..., list[Any]], list[float], list[list[float]], float]:
    """The right-hand side, orders, initial values and the end, where these state all of the equation."""
    given = problem.given
    for key, words in (
        ("implicit", "the highest derivative does not stand alone"), ("terms", "several derivatives on the left"),
        ("delays", "delays"), ("derivative", "another definition than Caputo's"),
    ):  # fmt: skip
        if key in given:
            raise NotExpressible(words)
    orders = [float(order) for order in problem.numbers(given["order"])]
    return (
        function(given["rhs"], "t, y", problem.parameters, library),
        orders,
        problem.numbers(given["start"]),
        problem.number("end"),
    )


def interpolated(problem: Problem, t: Sequence[float], y: Any) -> np.ndarray:
    """The steps of shape (N, d), linear in between, at the times of the reference."""
    return np.array([np.interp(problem.at[:, 0], t, column) for column in np.asarray(y).T])
