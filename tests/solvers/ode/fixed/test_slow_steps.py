"""Large batches, whose steps are so slow that each is checked by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc.solvers.ode.fixed import walk
from hpfracc.solvers.ode.fixed.stepping import NumpyStepper
from hpfracc.solvers.ode.methods.pece import PECE
from hpfracc.solvers.ode.problem import read_problem
from hpfracc.solvers.ode.stiffness import LIMIT, StiffnessGuard

Array = np.ndarray[Any, Any]


def relax(t: float, y: Array) -> Array:
    return np.cos(t) - y * y


@pytest.mark.parametrize("method", ["pece", "explicit_rectangle", "implicit_trapezoid"])
def test_a_block_is_copied_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each of its steps; the numbers are those of one call for the block."""
    starts = np.linspace(0.5, 1.0, 14).reshape(7, 2)
    ask = lambda: hf.solve_fode(relax, (0.0, 1.0), starts, 0.7, step=0.01, method=method, backend="numpy").y  # noqa: E731
    expected = ask()
    opened: list[Any] = []
    original = NumpyStepper._open_block

    def watch(self: NumpyStepper, begin: int, first: int) -> tuple[Array, Array]:
        found = original(self, begin, first)
        opened.append(found[0])
        return found

    monkeypatch.setattr(NumpyStepper, "_open_block", watch)
    monkeypatch.setattr(walk, "_BLOCK_SECONDS", 0.0)
    np.testing.assert_array_equal(ask(), expected)
    assert len(opened) > 80 and all(each is opened[0] for each in opened)


def test_a_norm_saves_eigenvalues_and_changes_none() -> None:
    """The largest number above a bound is the same, whichever members are left out; 0 if none can be above."""
    states = np.random.default_rng(5).normal(size=(40, 2)) * np.geomspace(0.01, 100.0, 40)[:, None]
    problem = read_problem(lambda t, y: -y * np.abs(y[..., ::-1]), (0.0, 1.0), states, 0.8)
    guard = StiffnessGuard(problem, 0.05, PECE())
    assert guard.number(0.0, states) > LIMIT
    assert guard.number(0.0, states, LIMIT) == guard.number(0.0, states)
    assert guard.number(0.0, states, 1e9) == 0.0
