"""``hf.explain(hf.solve_fode, ...)``: what a solve would do, without a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf

CALLS: list[float] = []


def decay(t: float, y: Any) -> Any:
    CALLS.append(t)
    return -y


def stiff(t: float, y: Any) -> Any:
    return -1e6 * y


@pytest.mark.parametrize(
    ("options", "method", "steps"),
    [
        ({"step": 0.01}, "pece", 100),
        ({}, "adaptive", None),
        ({"step": 0.01, "method": "bdf2"}, "bdf2", 100),
        ({"method": "pece", "rtol": 1e-2, "atol": 1e-2}, "pece", None),
        ({"terms": [(1.0, 0.3)]}, "adaptive", None),
        ({"t_eval": [0.5, 1.0], "method": "bdf2", "rtol": 1e-2, "atol": 1e-2}, "bdf2", None),
    ],
    ids=str,
)
def test_says_what_would_be_done(options, method, steps):
    """The method and the steps that a solve then takes, from calls of the right-hand side at t0 and one step ahead."""
    CALLS.clear()
    found = hf.explain(hf.solve_fode, decay, (0.0, 1.0), [1.0], 0.5, **options)
    assert set(CALLS) <= {0.0, 0.01} and len(CALLS) < 9
    assert (found.method, found.steps) == (method, steps)
    solved = hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, **options)
    assert solved.success and solved.decision.method == method
    assert steps is None or len(solved.t) == steps + 1


def test_says_why():
    """A stiff equation, a name that was given, compiling; as text and as plain values."""
    found = hf.explain(hf.solve_fode, stiff, (0.0, 1.0), [1.0], 0.5, step=0.1)
    assert found.method == "implicit_trapezoid" and "stiff for this step" in found.reason
    named = hf.explain(hf.solve_fode, stiff, (0.0, 1.0), [1.0], 0.5, step=0.1, method="l1", compile=False)
    assert "by its name" in named.reason and "compile=False" in named.compiling
    assert str(named).startswith("solve_fode: method 'l1'") and named.to_dict()["steps"] == 10


def test_a_wrong_question_is_the_same_error():
    """What ``solve_fode`` refuses, its explanation refuses; afterwards solves run as before."""
    with pytest.raises(hf.errors.InvalidInputError, match="t_span"):
        hf.explain(hf.solve_fode, decay, (1.0, 0.0), [1.0], 0.5)
    with pytest.raises(hf.errors.InvalidInputError, match="hf.solve_fode, fun"):
        hf.explain("solve_fode", shape=3)
    assert np.isfinite(hf.solve_fode(decay, (0.0, 1.0), [1.0], 0.5, step=0.1).y).all()
