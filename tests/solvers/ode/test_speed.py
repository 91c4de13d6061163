"""How the time of a solve grows with its steps."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

import hpfracc as hf


def decay(t: float, y: Any) -> Any:
    return -y


@pytest.mark.bench
@pytest.mark.parametrize("method", ["pece", "implicit_trapezoid", "multistep_trapezoid"])
def test_time_grows_little_faster_than_steps(method: str):
    """From 1e4 steps on a decade more costs at most 10^1.25 times as much, and a million takes less than 5 s."""

    def seconds(steps: int) -> float:
        found = []
        for _ in range(3):
            begin = time.process_time()
            assert hf.solve_fode(decay, (0.0, 10.0), [1.0], 0.6, method=method, step=10.0 / steps, compile=True).success
            found.append(time.process_time() - begin)
        return min(found)

    times = [seconds(10**k) for k in (4, 5, 6)]
    assert math.log10(times[1] / times[0]) <= 1.25
    assert math.log10(times[2] / times[1]) <= 1.25
    assert times[2] < 5.0


@pytest.mark.bench
def test_a_function_in_python_costs_little_more_than_itself():
    """At most 1.5 times its bare evaluations and the compiled solver, in the median of rounds that take turns."""
    point, steps = np.array([1.0]), 10_000

    def seconds(work: Any) -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    def solve(compiled: bool) -> None:
        options: dict[str, Any] = {"compile": True} if compiled else {"compile": False, "backend": "numba"}
        assert hf.solve_fode(decay, (0.0, 10.0), [1.0], 0.6, method="pece", step=10.0 / steps, **options).success

    def bare() -> None:
        for n in range(2 * steps):
            decay(n * 1e-3, point)

    solve(True)
    solve(False)
    ratios = [seconds(lambda: solve(False)) / (seconds(bare) + seconds(lambda: solve(True))) for _ in range(11)]
    assert np.median(ratios) < 1.5
