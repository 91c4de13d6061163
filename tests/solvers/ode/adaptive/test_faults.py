"""Nothing is truncated in silence: each way to fail, and what the adaptive method says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError, ShapeError
from hpfracc.solvers.ode import problems
from tests.helpers.interrupts import part_of


def test_too_few_steps():
    """Steps that do not reach the end: no success, the part that was solved, and what to do."""
    result = hf.solve_fode(lambda t, y: -y, (0.0, 10.0), [1.0], 0.5, max_steps=20)
    assert not result.success and result.status == -1
    assert "max_steps=20 steps reach t = " in result.message and "raise max_steps" in result.message
    assert result.t[-1] < 10.0 and result.y.shape == (1, 21)


def test_a_solution_that_ends():
    """y' = y^2 ends at t = 1: the message says where, and the solution up to there is given."""
    result = hf.solve_fode(lambda t, y: y * y, (0.0, 2.0), [1.0], 1.0, rtol=1e-3, atol=1e-6)
    assert not result.success
    assert "t = 1" in result.message or "t = 0.99" in result.message
    assert result.t[-1] == pytest.approx(1.0, abs=1e-3)


def test_not_a_number_from_a_time_on():
    """NaN beyond t = 1: the message says at which t, and the solution ends there."""

    def fun(t: float, y: Any) -> Any:
        return -y if t < 1.0 else np.full_like(y, np.nan)

    result = hf.solve_fode(fun, (0.0, 2.0), [1.0], 0.5)
    assert not result.success
    assert "not finite" in result.message and "1" in result.message
    assert 0.9 < result.t[-1] <= 1.0


def test_not_a_number_at_the_start():
    """A right-hand side that is infinite at t0 is said to be."""
    with np.errstate(divide="ignore"):
        result = hf.solve_fode(lambda t, y: y / np.float64(t), (0.0, 1.0), [1.0], 0.5)
    assert not result.success
    assert "not finite at t0 = 0" in result.message


def test_another_shape():
    """A right-hand side of another shape is an error, not a broadcast."""
    with pytest.raises(ShapeError, match=r"returned shape \(3,\); return an array"):
        hf.solve_fode(lambda t, y: np.zeros(3), (0.0, 1.0), [1.0, 2.0], 0.5)


def test_chaos_is_not_called_solved():
    """On Lorenz's attractor no tolerance holds for long: no success, with the error; one pass makes no such claim."""
    problem = problems.lorenz(0.995, t_end=25.0)
    options: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
    whole = hf.solve_fode(problem.fun, problem.t_span, problem.y0, problem.alpha, method="adaptive_local", **options)
    assert whole.success and whole.stats["error_over_tolerance"] > 100.0
    assert whole.t[-1] == 25.0
    assert whole.decision.method == "adaptive_local"


@pytest.mark.slow
def test_chaos_under_global_control():
    """Asked for the solution itself, the answer is no success and the reason."""
    problem = problems.lorenz(0.995, t_end=40.0)
    result = hf.solve_fode(problem.fun, problem.t_span, problem.y0, problem.alpha, rtol=1e-3, atol=1e-4)
    assert not result.success
    assert "times the tolerance" in result.message and "adaptive_local" in result.message


def test_the_lorenz_attractor_as_far_as_it_can_be_followed():
    """To t = 4 the stored solution is followed."""
    problem = problems.lorenz(0.95)
    t, exact = problem.known()
    result = hf.solve_fode(problem.fun, problem.t_span, problem.y0, problem.alpha, t_eval=t, rtol=1e-5, atol=1e-7)
    assert result.success
    assert np.max(np.abs(result.y - exact) / np.abs(exact).max(axis=0)) < 1e-4


def test_an_interruption_keeps_what_is_done():
    """Ctrl-C during the solve gives the solution so far."""
    calls = 0

    def fun(t: float, y: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 200:
            raise KeyboardInterrupt
        return -y

    result = part_of(lambda: hf.solve_fode(fun, (0.0, 10.0), [1.0], 0.5, rtol=1e-9))
    assert not result.success and result.message.startswith("Interrupted at t = ")
    assert result.y.shape[1] == result.t.size > 10


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"step": 0.1}, "omit step"),
        ({"atol": 0.0}, "needs atol above 0"),
        ({"compile": True, "backend": "numpy"}, "omit one of them"),
        ({"alpha": lambda t: 0.5}, "use method='variable_order'"),
        ({"rtol": 1e-14}, "below what float64 can hold"),
    ],
)
def test_what_it_does_not_take(options: dict[str, Any], complaint: str):
    """Options that would be ignored are refused instead."""
    alpha = options.pop("alpha", 0.5)
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], alpha, method="adaptive", **options)


def test_a_jump_of_the_right_hand_side_is_passed():
    """A load that jumps is stepped over with small steps, and the solution after it is right."""
    result = hf.solve_fode(
        lambda t, y: np.array([1.0 if t < 0.5 else -1.0]), (0.0, 1.0), [0.0], 0.7, rtol=1e-6, atol=1e-8
    )
    exact = (1.0 - 2.0 * 0.5**0.7) / math.gamma(1.7)
    assert result.success
    assert result.y[0, -1] == pytest.approx(exact, abs=1e-4)
