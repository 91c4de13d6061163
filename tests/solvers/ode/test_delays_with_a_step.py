"""Delays with a fixed step: closed forms by the method of steps, with the order of each method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from tests.helpers.convergence import observed_order
from tests.helpers.thinned import thinned


def closed_form(t: float, alpha: float, delay: float) -> float:
    """D^alpha y = -y(t - delay), y = 1 up to 0: one power more after each delay."""
    total = 1.0
    for k in range(math.ceil(t / delay)):
        power = alpha * (k + 1)
        total += (-1.0) ** (k + 1) * (t - k * delay) ** power / math.gamma(power + 1.0)
    return total


def error_of(method: str, alpha: float, delay: float, steps: int) -> float:
    result = hf.solve_fode(
        lambda t, y, past: -past[0], (0.0, 2.5), [1.0], alpha, delays=[delay], history=1.0, step=2.5 / steps,
        method=method,
    )  # fmt: skip
    assert result.success
    exact = np.array([closed_form(t, alpha, delay) for t in result.t])
    return float(np.abs(result.y[0] - exact)[result.t >= 0.5].max())


@pytest.mark.parametrize("delay", [0.5, 0.437], ids=["on_steps", "between_steps"])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize(
    ("method", "order"),
    [("explicit_rectangle", 1.0), ("implicit_rectangle", 1.0), ("pece", 2.0), ("implicit_trapezoid", 2.0),
     ("bdf2", 2.0), ("newton_gregory", 2.0)],
)  # fmt: skip
@thinned(lambda alpha, delay: alpha == 0.6 and delay == 0.437)
def test_a_delay_keeps_the_order(method: str, order: float, alpha: float, delay: float):
    """The largest error after the first delay falls with the method's order, or 2 alpha where that is less.

    At each multiple of the delay the right-hand side begins again like t^alpha.
    """
    counts = (100, 200, 400)
    found = observed_order([1.0 / n for n in counts], [error_of(method, alpha, delay, n) for n in counts])
    assert found > min(order, 2.0 * alpha) - 0.2


@pytest.mark.parametrize(("method", "order"), [("pece", 1.8), ("implicit_trapezoid", 1.8), ("explicit_rectangle", 1.0)])
@thinned(lambda method: method == "pece")
def test_a_delay_shorter_than_the_step(method: str, order: float):
    """The delayed time lies within the step that is being taken, and the order stays: beside the adaptive solution."""
    fun, given = (lambda t, y, past: -y - 0.5 * past[0]), {"delays": [0.02], "history": 1.0}
    exact = hf.solve_fode(fun, (0.0, 2.0), [1.0], 0.8, rtol=1e-8, atol=1e-10, t_eval=[2.0], **given).y[0, 0]
    counts = (20, 40, 80)
    errors = [
        abs(hf.solve_fode(fun, (0.0, 2.0), [1.0], 0.8, step=2.0 / n, method=method, **given).y[0, -1] - exact)
        for n in counts
    ]
    assert observed_order([1.0 / n for n in counts], errors) > order - 0.15


def test_a_delay_of_a_millionth():
    """With adaptive steps a refusal that names the delay and the remedy, which works."""
    given: dict[str, Any] = {"delays": [1e-6], "history": [1.0]}

    def fun(t: float, y: Any, past: Any) -> Any:
        return -past[0]

    with pytest.raises(InvalidInputError, match=r"shortest delay, 1e-06.*give step="):
        hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, **given)
    result = hf.solve_fode(fun, (0.0, 1.0), [1.0], 0.5, step=0.005, **given)
    assert result.y[0, -1] == pytest.approx(float(hf.mittag_leffler(-1.0, 0.5)), abs=2e-5)


def test_steps_held_down_by_a_delay_do_not_overflow():
    """Many steps that could have been longer: the step size that was never taken stays a number."""
    result = hf.solve_fode(
        lambda t, y, past: -0.0 * past[0], (0.0, 1.0), [1.0], 0.9, delays=[1e-4], history=1.0, rtol=1e-3, max_steps=1300
    )
    assert not result.success and "shortest delay" in result.message and np.all(result.y == 1.0)


def test_batches_orders_arguments_and_terms():
    """Two delays, an order for each component and further arguments, beside adaptive steps; and several terms."""
    given: dict[str, Any] = {"delays": [0.3, 0.71], "history": np.cos, "args": (2.0,), "t_eval": [1.0, 2.0]}
    y0 = [[1.0, 2.0], [3.0, 4.0]]

    def fun(t: float, y: Any, past: Any, rate: float) -> Any:
        return -rate * past[0] - past[1]

    tight = hf.solve_fode(fun, (0.0, 2.0), y0, [0.7, 0.9], rtol=1e-4, **given).y
    assert hf.solve_fode(fun, (0.0, 2.0), y0, [0.7, 0.9], step=0.01, **given).y == pytest.approx(tight, abs=2e-3)
    plate: dict[str, Any] = {"dy0": [[0.0]], "terms": [(0.5, 0.5)], "delays": [0.3], "history": 1.0, "t_eval": [2.0]}
    tight = hf.solve_fode(lambda t, y, past: -y - past[0], (0.0, 2.0), [1.0], 1.5, **plate).y
    stepped = hf.solve_fode(lambda t, y, past: -y - past[0], (0.0, 2.0), [1.0], 1.5, step=0.01, **plate).y
    assert stepped == pytest.approx(tight, abs=1e-3)


def test_a_jump_at_the_start_on_a_step():
    """y = 0 before 0 and 1 at 0: where the delay is a whole number of steps, the error falls with order 2 alpha."""
    errors = []
    for n in (80, 160, 320):
        result = hf.solve_fode(
            lambda t, y, past: past[0], (0.0, 2.0), [1.0], 0.6, delays=[1.0], history=0.0, step=2.0 / n
        )
        errors.append(abs(result.y[0, -1] - 1.0 - 1.0 / math.gamma(1.6)))
    assert observed_order([1 / 80, 1 / 160, 1 / 320], errors) > 1.1


@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid"])
@pytest.mark.parametrize(("place", "alpha"), [(0.65, 0.8), (0.3, 1.0), (2.5, 0.4), (2.5, 0.8)])
def test_the_estimate_knows_a_delay_of_a_few_steps(place: float, alpha: float, method: str):
    """The bend that it causes has no smooth steps before it, by which others are found."""
    step = 0.02
    result = hf.solve_fode(
        lambda t, y, past: -past[0], (0.0, 1.0), [1.0], alpha, delays=[place * step], history=1.0, step=step,
        method=method,
    )  # fmt: skip
    errors = [abs(y - closed_form(t, alpha, place * step)) for t, y in zip(result.t, result.y[0], strict=True)]
    assert max(errors) < 2.0 * result.error_estimate


@pytest.mark.parametrize("alpha", [0.5, 1.5])
@pytest.mark.parametrize("place", [1.0, 1.7, 2.0, 3.0])
def test_the_estimate_knows_a_jump_after_a_few_steps(place: float, alpha: float):
    """``D^alpha y = y(t - delay)`` from 1, behind a history of 0."""
    delay = place * 0.02
    result = hf.solve_fode(
        lambda t, y, past: past[0], (0.0, 1.0), [1.0], alpha, delays=[delay], history=0.0, step=0.02,
        dy0=[[0.0]] if alpha > 1.0 else None,
    )  # fmt: skip
    powers = [(k, alpha * k) for k in range(math.ceil(1.0 / delay) + 1)]
    terms = [np.maximum(result.t - k * delay, 0.0) ** p / math.gamma(p + 1.0) for k, p in powers]
    assert np.abs(result.y[0] - sum(terms)).max() < 2.0 * result.error_estimate


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"step": 0.1, "compile": True}, "not compiled"),
        ({"step": 0.1, "backend": "numba"}, "not compiled"),
        ({"step": 0.2, "delays": [0.3], "method": "bdf2"}, "the delay 0.3 is shorter"),
        ({"history": [1.0, 2.0, 3.0]}, "finite numbers that broadcast"),
        ({"history": "before"}, "give a function"),
        ({"history": math.nan}, "finite numbers"),
    ],
)
def test_what_is_refused(options: dict[str, Any], complaint: str):
    """Each wrong question has its sentence."""
    given: dict[str, Any] = {"delays": [0.5], "history": 1.0, **options}
    with pytest.raises(InvalidInputError, match=complaint):
        hf.solve_fode(lambda t, y, past: -past[0], (0.0, 1.0), [1.0], 0.5, **given)


def test_an_array_serves_as_history():
    """A constant of the shape of y0, changed by the caller afterwards, is the function that returns it."""
    past = np.array([1.0, 2.0])
    given: dict[str, Any] = {"delays": [0.5], "rtol": 1e-5}
    fixed = hf.solve_fode(lambda t, y, z: -z[0], (0.0, 1.0), [1.0, 2.0], 0.7, history=past, **given).y
    called = hf.solve_fode(lambda t, y, z: -z[0], (0.0, 1.0), [1.0, 2.0], 0.7, history=lambda t: past, **given).y
    assert np.array_equal(fixed, called)
