"""Equations with several derivatives, and with delays, beside their closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import rgamma

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode import problems
from tests.helpers.thinned import thinned


@pytest.mark.parametrize("rtol", [1e-4, 1e-7])
def test_bagley_torvik_as_one_equation(rtol: float):
    """y'' + 0.5 D^1.5 y + y = 0.5 written with terms is solved to the tolerance."""
    t, exact = problems.bagley_torvik().known()
    result = hf.solve_fode(
        lambda t, y: 0.5 - y, (0.0, 20.0), [1.0], 2.0, dy0=[[0.0]], terms=[(0.5, 1.5)], t_eval=t, rtol=rtol, atol=rtol
    )
    assert result.success and result.y.shape == (1, t.size)
    assert np.max(np.abs(result.y[0] - exact[0])) < 10.0 * rtol


def test_terms_of_all_kinds():
    """A coefficient that is a function, a term of order 0, events and sol(t): y = 1 + t solves it."""

    def two(t: float, y: Any) -> float:
        return float(y[0] - 2.0)

    # y'' + t D^0.5 y + 3 y = f with y = 1 + t; D^0.5 t = t^0.5 / Gamma(1.5).
    def fun(t: float, y: Any) -> Any:
        return t**1.5 / math.gamma(1.5) + 3.0 * (1.0 + t) + 0.0 * y

    result = hf.solve_fode(
        fun,
        (0.0, 2.0),
        [1.0],
        2.0,
        dy0=[[1.0]],
        terms=[(lambda t: t, 0.5), (3.0, 0.0)],
        events=two,
        dense_output=True,
        rtol=1e-7,
        atol=np.array([1e-9]),
        jac=lambda t, y: np.zeros((1, 1)),
    )
    assert result.success
    assert result.y[0] == pytest.approx(1.0 + result.t, abs=1e-6)
    assert result.t_events[0][0] == pytest.approx(1.0, abs=1e-6)
    assert result.y_events[0].shape == (1, 1)
    assert result.sol([0.5, 1.5]).shape == (1, 2)


def test_terms_with_a_fixed_step():
    """Fixed-step methods take multi-term equations too, at their own order."""
    _, exact = problems.bagley_torvik().known()
    errors = []
    for n in (500, 1000):
        result = hf.solve_fode(
            lambda t, y: 0.5 - y, (0.0, 20.0), [1.0], 2.0, dy0=[[0.0]], terms=[(0.5, 1.5)], step=20.0 / n, method="pece"
        )
        errors.append(abs(result.y[0, -1] - exact[0, -1]))
    assert errors[0] > 2.0 * errors[1]
    assert errors[1] < 1e-2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"alpha": 1.0, "terms": [(1.0, 1.5)]}, "a term has order 1.5, and alpha=1"),
        ({"alpha": 0.5, "terms": [(1.0, 0.2)], "derivative": "riemann_liouville"}, "Caputo.s derivative"),
        ({"alpha": (0.5, 0.6), "terms": [(1.0, 0.2)]}, "one leading order"),
        ({"alpha": 0.5, "terms": [(1.0, -0.2)]}, "order"),
        ({"alpha": 0.5, "delays": [0.5]}, "need a history"),
        ({"alpha": 0.5, "delays": [-0.5], "history": lambda t: [1.0, 1.0]}, "above 0"),
        ({"alpha": 0.5, "delays": [0.5], "history": 1.0, "step": 0.1, "method": "adaptive"}, "omit step"),
        ({"alpha": 0.5, "delays": [0.5], "history": lambda t: [1.0, 1.0], "method": "l1", "step": 0.1}, "no delays"),
    ],
)
def test_what_is_refused(options: dict[str, Any], complaint: str):
    """Each wrong question has its sentence."""
    alpha = options.pop("alpha")
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y, *more: -y, (0.0, 1.0), [1.0, 1.0], alpha, **options)


def steps_solution(t: float, alpha: float) -> float:
    """D^alpha y = -y(t - 1), y = 1 before 0: a power more after each delay."""
    terms = range(math.ceil(t))
    return 1.0 + sum(
        (-1.0) ** (k + 1) * (t - k) ** (alpha * (k + 1)) / math.gamma(alpha * (k + 1) + 1.0) for k in terms
    )


@pytest.mark.parametrize("rtol", [1e-4, 1e-7])
@pytest.mark.parametrize("alpha", [0.5, 0.8, 1.0, 1.5])
@thinned(one_in=2)
def test_a_delay_by_the_method_of_steps(alpha: float, rtol: float):
    """The closed form, also right after the break at t = 1, where the solution is not smooth."""
    t = np.array([0.5, 1.0, 1.0001, 1.5, 2.0, 2.5, 3.5])
    result = hf.solve_fode(
        lambda t, y, past: -past[0],
        (0.0, 3.5),
        [1.0],
        alpha,
        dy0=[[0.0]] if alpha > 1 else None,
        delays=[1.0],
        history=lambda t: [1.0],
        t_eval=t,
        rtol=rtol,
        atol=rtol,
    )
    exact = [steps_solution(time, alpha) for time in t]
    assert result.success and result.decision.reason == "the equation has delays"
    assert np.max(np.abs(result.y[0] - exact)) < 10.0 * rtol


def test_the_start_counts_at_once_behind_a_delay():
    """Within 1e-12 of the delay the delayed state is the solution, which rises like t^alpha, and no longer history."""
    alpha, rate, lag = 0.2743, 1.43, 1.536
    found = hf.solve_fode(
        lambda t, y, past: -rate * past[0], (0.0, 1.6), [1.0], alpha, delays=[lag], history=1.0, rtol=1.7e-8, atol=2e-11
    )
    late = np.maximum(found.t - lag, 0.0)
    truth = 1.0 - rate * found.t**alpha * rgamma(alpha + 1.0) + rate**2 * late ** (2 * alpha) * rgamma(2 * alpha + 1.0)
    assert found.success, found.message
    assert np.abs(found.y[0] - truth).max() <= found.error_estimate


def test_a_history_that_jumps_at_the_start():
    """y = 0 before 0 and 1 at 0: nothing happens until t = 1, and then the delayed value acts."""
    result = hf.solve_fode(
        lambda t, y, past: past[0],
        (0.0, 2.0),
        [1.0],
        0.6,
        delays=[1.0],
        history=lambda t: [0.0],
        t_eval=[0.9, 1.0, 2.0],
        rtol=1e-7,
        atol=1e-9,
    )
    assert result.y[0, :2] == pytest.approx([1.0, 1.0], abs=1e-8)
    assert result.y[0, 2] == pytest.approx(1.0 + 1.0 / math.gamma(1.6), abs=1e-6)


def test_two_delays_and_arguments():
    """Several delays come in their order, before further arguments."""
    seen = []

    def fun(t: float, y: Any, past: Any, rate: float) -> Any:
        seen.append((len(past), rate))
        return -rate * past[0] + 0.0 * past[1]

    result = hf.solve_fode(
        fun, (0.0, 1.5), [1.0], 0.8, args=(1.0,), delays=[1.0, 0.5], history=lambda t: [1.0], rtol=1e-6, atol=1e-8
    )
    assert set(seen) == {(2, 1.0)}
    assert result.y[0, -1] == pytest.approx(steps_solution(1.5, 0.8), abs=1e-5)


@pytest.mark.parametrize("delays", [(0.7, 1.0), (0.1, 0.3)])
def test_two_delays_break_the_solution_at_their_sums(delays: tuple[float, float]):
    """From a jump at t0: the error stays below the tolerance, and breaks a rounding apart (0.1 * 3 and 0.3) are one."""
    alpha, tolerance, end = 0.6, 1e-6, 2.5 * delays[1]

    def exact(t: Any) -> Any:
        total = np.zeros_like(t)
        for i in range(30):
            for j in range(10):
                after = t - i * delays[0] - j * delays[1]
                size = math.comb(i + j, i) * rgamma((i + j) * alpha + 1.0)
                total += (-1.0) ** (i + j) * size * np.where(after >= 0.0, np.abs(after) ** ((i + j) * alpha), 0.0)
        return total

    found = hf.solve_fode(
        lambda t, y, past: -past[0] - past[1], (0.0, end), [1.0], alpha, delays=delays, history=lambda t: 0.0,
        rtol=tolerance, atol=tolerance,
    )  # fmt: skip
    assert found.success, found.message
    assert np.max(np.abs(found.y[0] - exact(found.t)) / (tolerance + tolerance * np.abs(found.y[0]))) < 3.0


def test_an_equation_of_several_terms_is_not_compiled():
    """And says so of itself, not of the function."""
    with pytest.raises(InvalidInputError, match="multi-term equations"):
        hf.solve_fode(lambda t, y: -y, (0.0, 1.0), [1.0], 1.0, terms=[(1.0, 0.5)], step=0.1, compile=True)
