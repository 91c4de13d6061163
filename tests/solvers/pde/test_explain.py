"""``hf.explain(hf.solve_fpde, ...)`` says what a solve then does, and steps nothing."""

from __future__ import annotations

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.pde import Diffusion, FractionalDiffusion

X = np.linspace(0.0, np.pi, 17)
LINE = {"x": X, "space": Diffusion(1.0), "boundary": "dirichlet"}
CALLS = {
    "exact": ((None, (0.0, 1.0), np.sin(X)), {**LINE, "alpha": 0.5}),
    "graded": ((None, (0.0, 1.0), np.sin(X)), {**LINE, "alpha": 0.5, "method": "l1", "step": 0.02}),
    "exponentials": ((None, (0.0, 1.0), np.sin(X)), {**LINE, "alpha": 0.5, "method": "l2_1sigma", "step": 1e-3}),
    "waves": ((lambda t, u: -u, (0.0, 1.0), np.sin(X)), {**LINE, "alpha": 1.5, "du0": 0.0, "step": 0.02}),
    "finite volumes": ((None, (0.0, 1.0), np.sin(X)), {**LINE, "space": Diffusion(lambda x: 1.0 + x), "step": 0.1}),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_says_what_a_solve_does(name: str):
    """Method, reason, space, memory, steps and forecast are those of the solve."""
    args, given = CALLS[name]
    told = hf.explain(hf.solve_fpde, *args, **given)
    found = hf.solve_fpde(*args, **given)
    decision = found.decision
    assert (told.method, told.reason) == (decision.method, decision.reason)
    assert (told.space, told.accuracy, told.history) == (decision.space, decision.accuracy, decision.history)
    assert told.steps == found.stats["steps"] and told.forecast_bytes == found.stats["forecast_bytes"]
    assert told.unknowns == 15 and told.compiled == found.stats.get("compiled", False)
    assert set(told.to_dict()) >= {"order", "notes"} and told.reason in str(told)


def test_nothing_is_stepped():
    """The reaction is called once, to see what it returns; steps that follow from the tolerance are not known."""
    calls = []

    def reaction(t: float, u: np.ndarray) -> np.ndarray:
        calls.append(t)
        return -u

    x = 2.0 * np.pi / 16 * np.arange(16)
    told = hf.explain(
        hf.solve_fpde, reaction, (0.0, 1.0), np.sin(x), x=x, space=FractionalDiffusion(1.5), boundary="periodic"
    )
    assert calls == [0.0] and told.steps is None
    assert "rtol=1e-06" in told.stepping and "0.1 of the error of the grid" in told.stepping and told.method == "etdrk4"


def test_bad_questions_are_refused_as_in_a_solve():
    """And the name alone is told what it needs."""
    with pytest.raises(hf.errors.InvalidInputError, match="alpha=1.5 is above 1 and needs du0"):
        hf.explain(hf.solve_fpde, None, (0.0, 1.0), np.sin(X), alpha=1.5, **LINE)
    with pytest.raises(hf.errors.InvalidInputError, match="needs its equation"):
        hf.explain("solve_fpde")


def test_the_memory_of_steps_that_follow_from_the_tolerance():
    """A guess at the steps, and what each more takes: within a factor of 4 for a smooth source, not the first mesh."""
    given = {**LINE, "alpha": 0.6, "source": lambda t, x: np.cos(t) * x, "estimate": True, "method": "l2_1sigma"}
    steps = {**given, "method": "adaptive"}
    told = hf.explain(hf.solve_fpde, None, (0.0, 1.0), np.sin(X), **steps)
    found = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **steps)
    assert told.steps is None and 0.25 <= told.likely_steps / found.stats["steps"] <= 4.0
    assert told.bytes_per_step < found.u[0].nbytes / 4 and len(found.t) <= 201
    given["save"] = "all"
    told = hf.explain(hf.solve_fpde, None, (0.0, 1.0), np.sin(X), **given)
    found = hf.solve_fpde(None, (0.0, 1.0), np.sin(X), **given)
    assert told.steps is None and 0.25 <= told.likely_steps / found.stats["steps"] <= 4.0
    assert 0.25 < told.forecast_bytes / found.stats["forecast_bytes"] < 6.0
    assert told.bytes_per_step >= found.u[0].nbytes and "for each further 1,000" in str(told)
    last = hf.explain(hf.solve_fpde, None, (0.0, 1.0), np.sin(X), **{**given, "save": "last"})
    assert last.bytes_per_step < told.bytes_per_step
