"""The search for a step, and ends of a solve: whatever happens, the answer has the form that was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import BackendUnavailableError, InvalidInputError
from tests.helpers.interrupts import part_of

TIMES = np.array([0.0, 0.25, 1.0])


def decay(t: float, y: Any) -> Any:
    return -y


@pytest.mark.parametrize("max_steps", [100, 200, 100_000])
def test_a_search_gives_the_times_asked_for_also_where_it_fails(max_steps: int):
    """t_eval, dense_output and events hold for the result that misses the tolerance too, and all calls are counted."""
    calls = []

    def counted(t: float, y: Any) -> Any:
        calls.append(t)
        return -y

    found = hf.solve_fode(
        counted, (0.0, 1.0), [1.0], 0.5, method="implicit_trapezoid", t_eval=TIMES, dense_output=True,
        events=lambda t, y: y[0] - 0.6, max_steps=max_steps, rtol=1e-4, atol=1e-4, compile=False,
    )  # fmt: skip
    assert found.success is (max_steps == 100_000)
    np.testing.assert_array_equal(found.t, TIMES)
    assert found.y.shape == (1, 3) and found.sol is not None and len(found.t_events[0]) == 1  # type: ignore[index]
    assert found.nfev == len(calls)
    np.testing.assert_allclose(found.sol(TIMES), found.y, rtol=1e-12)


def test_an_interrupted_search_ends():
    """Ctrl-C during one attempt is not taken for a failure that smaller steps would mend; progress is told of."""
    calls, told = [], []

    def interrupted(t: float, y: Any) -> Any:
        calls.append(t)
        if len(calls) == 100:
            raise KeyboardInterrupt
        return -y

    options = {"method": "implicit_trapezoid", "t_eval": TIMES, "progress": lambda t, y: told.append(t)}
    found = part_of(lambda: hf.solve_fode(interrupted, (0.0, 1.0), [1.0], 0.5, **options))
    assert not found.success and "Interrupted" in found.message and len(calls) == 100
    assert found.t.tolist() == [0.0, 0.25] and told


@pytest.mark.parametrize(("method", "step"), [("pece", 0.1), ("l1", 0.1), ("mittag_leffler", 0.1), ("adaptive", None)])
@pytest.mark.parametrize("span", [(-2.0, -1.0), (-2.830081973127222, -2.369660471278487), (0.1, 0.7), (1e6, 1e6 + 0.3)])
def test_the_end_is_among_the_times_given_back(method: str, step: float | None, span: tuple[float, float]):
    """t0 + (t1 - t0) need not be t1: the last time asked for is there all the same, and the last step is t1."""
    asked = hf.solve_fode(decay, span, [1.0], 0.5, method=method, step=step, t_eval=span)
    assert asked.t.tolist() == list(span) and asked.y.shape == (1, 2)
    assert hf.solve_fode(decay, span, [1.0], 0.5, method=method, step=step).t[-1] == span[1]


@pytest.mark.parametrize("method", ["pece", "bdf2", "l1", "mittag_leffler", "variable_order"])
def test_steps_beyond_max_steps_take_no_memory(method: str):
    """A step a billion times too small ends after max_steps steps, and allocates nothing for the others."""
    found = hf.solve_fode(decay, (0.0, 10.0), [1.0], 0.5, method=method, step=1e-11, max_steps=20)
    assert not found.success and "max_steps=20" in found.message
    assert found.y.shape == (1, 21)


@pytest.mark.parametrize(("method", "step"), [("auto", None), ("adaptive", None), ("l1", 0.1), ("mittag_leffler", 0.1)])
def test_a_backend_is_obeyed_or_refused(method: str, step: float | None):
    """Also by the methods that step with NumPy alone."""
    for wish in ("torch", "no such thing"):
        with pytest.raises(BackendUnavailableError):
            hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, method=method, step=step, backend=wish)
    with hf.use_backend("torch"), pytest.raises(BackendUnavailableError):
        hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, method=method, step=step)
    if method in ("l1", "mittag_leffler"):
        with pytest.raises(InvalidInputError, match="Numba"):
            hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, method=method, step=step, backend="numba")


def test_halved_steps_count_a_jump():
    """Two solutions may place it alike, and agree better than either is right."""
    alpha, jump, end = 0.9, 1.05, 2.0

    def fun(t: float, y: Any) -> Any:
        return -0.2 * y + 2.0 * (t >= jump)

    def truth(t: Any) -> Any:
        late = np.maximum(t - jump, 0.0)
        response = 2.0 * late**alpha * hf.mittag_leffler(-0.2 * late**alpha, alpha, alpha + 1.0)
        return hf.mittag_leffler(-0.2 * t**alpha, alpha) + response

    found = hf.solve_fode(fun, (0.0, end), [1.0], alpha, method="l2_1sigma", rtol=1e-3, atol=1e-3, max_steps=8192)
    assert np.abs(found.y[0] - truth(found.t)).max() <= 3.0 * found.error_estimate
    tight = hf.solve_fode(fun, (0.0, end), [1.0], alpha, method="l1", rtol=1e-6, atol=1e-4, max_steps=512)
    assert not tight.success


@pytest.mark.parametrize(("method", "alpha"), [("l1", 0.2), ("l2_1sigma", 0.1), ("auto", lambda t: 0.1 * t - 0.4)])
def test_a_search_where_times_do_not_tell_the_first_steps_apart(method: Any, alpha: Any):
    """The first steps of a graded mesh are shorter than the spacing of numbers about t0 = 5."""
    found = hf.solve_fode(decay, (5.0, 6.0), [1.0], alpha, method=method, rtol=1e-3, atol=1e-6)
    assert found.success and found.error_estimate < 1e-3


def test_a_remedy_that_would_be_refused_is_not_offered():
    """Adaptive steps take no order that varies in time; a jump is named also where no more steps are allowed."""
    for start, fall in ((0.8, 0.1), (0.9, 0.01)):
        found = hf.solve_fode(
            lambda t, y: -0.2 * y + 0.02 * (t >= 0.503), (0.0, 1.0), [1.0], lambda t, a=start, b=fall: a - b * t,
            rtol=3e-5, atol=3e-5, max_steps=2000,
        )  # fmt: skip
        assert not found.success and "right-hand side jumps near" in found.message and "adaptive" not in found.message


def test_the_last_state_is_that_of_the_last_time():
    """Where several steps end at the same number, the last of them counts."""
    found = hf.solve_fode(decay, (1e15, 1e15 + 1.0), [1.0], 0.5)
    assert np.all(np.diff(found.t) > 0.0) and found.y[0, 0] == 1.0
    assert found.y[0, -1] == pytest.approx(float(hf.mittag_leffler(-1.0, 0.5)), abs=1e-6)


@pytest.mark.parametrize(("method", "rate"), [("explicit_rectangle", 50.0), ("pece", 290.0), ("l1", 50.0)])
def test_a_search_that_would_take_minutes_ends_early(method: Any, rate: float):
    """Within a few thousand steps the rate of convergence shows that the tolerance takes too many; adaptive are few."""
    calls = []

    def counted(t: float, y: Any) -> Any:
        calls.append(t)
        return -y

    def solve(method: Any) -> Any:
        return hf.solve_fode(
            counted, (0.0, 1.0), [1.0], 0.5, derivative="tempered_caputo", rate=rate, rtol=1e-7, method=method
        )

    found = solve(method)
    assert not found.success and "max_steps=" in found.message and "method='adaptive'" in found.message
    assert found.stats["steps"] < 5_000 and len(calls) < 40_000
    assert solve("adaptive").success


def test_a_search_whose_steps_stay_unstable_says_what_to_do():
    """Explicit steps of an equation that decays a million times faster."""
    with np.errstate(all="ignore"):
        found = hf.solve_fode(lambda t, y: -1e6 * y, (0.0, 1.0), [1.0], 0.5, method="pece")
    assert not found.success and "1024 equal steps: give step=, or use method='adaptive'" in found.message
