"""Known jumps of the right-hand side, given as breakpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.errors import InvalidInputError
from hpfracc.special import mittag_leffler

JUMPS = (0.7, 1.7)


def box(t: float, y: Any) -> Any:
    """Reads the value behind a jump at its very time."""
    return -y + (1.0 if JUMPS[0] <= t < JUMPS[1] else 0.0)


def exact(t: Any, alpha: float, begin: float = 0.0) -> Any:
    """``D^alpha y = -y + box`` from y = 1."""

    def response(tau: Any) -> Any:
        tau = np.maximum(tau, 0.0)
        return tau**alpha * mittag_leffler(-(tau**alpha), alpha, alpha + 1.0)

    return mittag_leffler(-((t - begin) ** alpha), alpha) + response(t - JUMPS[0]) - response(t - JUMPS[1])


@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_given_jumps_are_met(alpha: float):
    """No step is rejected, and the tolerance holds where jumps that are found leave 500 times more."""
    found = hf.solve_fode(box, (0.0, 3.0), [1.0], alpha, rtol=1e-7, breakpoints=JUMPS)
    assert found.success and found.stats["rejected"] == 0
    error = np.max(np.abs(found.y[0] - exact(found.t, alpha)))
    assert error < 2e-8 and error < 1.5 * found.error_estimate


@pytest.mark.parametrize("more", [{"compile": True}, {"terms": [(0.0, 0.3)]}, {"dense_output": True}])
def test_jumps_are_met_on_either_side_of_rounding(more: dict[str, Any]):
    """``t0 + (b - t0)`` may lie before the breakpoint b; the right-hand side never sees that."""
    begin = -1.0 / 3.0
    found = hf.solve_fode(box, (begin, 3.0), [1.0], 0.6, rtol=1e-7, breakpoints=JUMPS, **more)
    assert found.success and np.max(np.abs(found.y[0] - exact(found.t, 0.6, begin))) < 2e-7
    if found.sol is not None:
        times = np.array([0.5, 0.7, 0.7 + 1e-9, 2.9])
        assert np.max(np.abs(found.sol(times)[0] - exact(times, 0.6, begin))) < 2e-7


def test_jumps_come_back_with_delays():
    """With y = 1 before 0, ``D^alpha y = p(t) y(t - 1)`` is 1 + p(t) t^alpha/Gamma(alpha + 1) up to t = 1."""
    alpha, place = 0.5, 0.25
    found = hf.solve_fode(
        lambda t, y, past: past[0] * (1.0 if t >= place else 0.0),
        (0.0, 1.0), [1.0], alpha, delays=[1.0], history=1.0, rtol=1e-7, breakpoints=[place],
    )  # fmt: skip
    wanted = 1.0 + np.maximum(found.t - place, 0.0) ** alpha / 0.886226925452758
    assert found.success and np.max(np.abs(found.y[0] - wanted)) < 2e-7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1.7, 0.7], "increasing"),
        ([0.0], "increasing times between 0 and 3"),
        ([3.0], "increasing times between 0 and 3"),
        ([np.nan], "not finite"),
        (0.7, "not a sequence"),
        (["0.7"], "real numbers"),
    ],
)
def test_what_is_no_breakpoint(given: Any, words: str):
    with pytest.raises((InvalidInputError, hf.errors.UnsupportedDtypeError), match=words):
        hf.solve_fode(box, (0.0, 3.0), [1.0], 0.5, breakpoints=given)


def test_equal_steps_take_no_breakpoints():
    with pytest.raises(InvalidInputError, match="makes them equal"):
        hf.solve_fode(box, (0.0, 3.0), [1.0], 0.5, step=0.1, breakpoints=JUMPS)
    with pytest.raises(InvalidInputError, match="breakpoints is for methods with adaptive steps"):
        hf.solve_fode(box, (0.0, 3.0), [1.0], 0.5, method="bdf2", breakpoints=JUMPS)


def test_a_jump_that_was_not_given_names_them():
    found = hf.solve_fode(box, (0.0, 3.0), [1.0], 0.3, rtol=1e-7)
    assert not found.success and "breakpoints=" in found.message
