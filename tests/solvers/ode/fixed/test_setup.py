"""What a short solve costs besides its steps, in calls of Python functions: these do not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import hpfracc as hf
from hpfracc.engine.execution.prepared import prepared_operands
from hpfracc.solvers.ode.fixed import walk as fixed_solve

pytest.importorskip("numba")

#: Calls in a solve of 300 steps with newly computed weights, a third above the number when this was written.
BOUNDS = {
    "explicit_rectangle": 425,
    "implicit_rectangle": 450,
    "pece": 505,
    "implicit_trapezoid": 500,
    "bdf2": 765,
    "newton_gregory": 780,
    "multistep_trapezoid": 735,
}


def decay(t: float, y: Any) -> Any:
    return -y


def count_calls(work: Callable[[], Any]) -> int:
    """Python functions that ``work()`` calls, those of ``decay`` aside."""
    calls = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is not decay.__code__

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.fixture
def calls_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """From a method and steps, the calls of the second solve: the first compiles."""
    # The steps between checks grow by measured time; with this target they grow as fast as allowed.
    monkeypatch.setattr(fixed_solve, "_BLOCK_SECONDS", 1e9)

    def calls(method: str, steps: int, **options: Any) -> int:
        def solve() -> None:
            prepared_operands.clear()
            assert hf.solve_fode(decay, (0.0, 10.0), [1.0], 0.6, method=method, step=10.0 / steps, **options).success

        solve()
        return count_calls(solve)

    return calls


@pytest.mark.parametrize("method", BOUNDS)
def test_a_short_solve_calls_few_functions(calls_of: Callable[..., int], method: str):
    """All that is done before and after compiled steps stays within bounds."""
    assert calls_of(method, 300, compile=True) <= BOUNDS[method]


def test_a_function_in_python_adds_few_calls(calls_of: Callable[..., int]):
    """With a right-hand side that stays in Python too, each step calls nothing but that."""
    assert calls_of("pece", 300, compile=False, backend="numba", estimate=False) <= BOUNDS["pece"]


def test_an_error_estimate_adds_few_calls(calls_of: Callable[..., int]):
    """It looks at few of the steps: as many calls as the rest of a short solve, and not ten times as many for more."""
    options: dict[str, Any] = {"compile": False, "backend": "numba"}
    short, long = (
        calls_of("pece", steps, **options) - calls_of("pece", steps, estimate=False, **options) for steps in (300, 3000)
    )
    assert short <= 530
    assert long <= 3 * short


@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid"])
def test_more_steps_take_few_more_calls(calls_of: Callable[..., int], method: str):
    """Ten times as many steps need only one more check."""
    assert calls_of(method, 1000, compile=True) <= calls_of(method, 100, compile=True) + 120
