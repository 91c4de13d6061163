"""A solve for which memory is short ends with a typed error that has the figures, before its arrays where it can."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import hpfracc as hf
from hpfracc import memory
from hpfracc.errors import OutOfMemoryError
from tests.helpers.processes import run_python


def decay(t: float, y: Any) -> Any:
    return -y


def test_arrays_that_cannot_fit_are_not_made() -> None:
    """Points, components, what they need and what is free, and what to do."""
    calls = []

    def watched(t: float, y: Any) -> Any:
        calls.append(t)
        return -y

    words = r"10,001 points of 100 components need at least 3\d\.\d MiB, and 16\.0 MiB are free; use a larger step"
    with memory.limit("cpu", "16MiB"), pytest.raises(OutOfMemoryError, match=words):
        hf.solve_fode(watched, (0.0, 1.0), np.ones(100), 0.5, step=1e-4, method="pece")
    assert len(calls) <= 2  # only to see what it gives


@pytest.mark.parametrize("step", [0.01, None])
def test_memory_that_runs_out_on_the_way_is_told(step: float | None) -> None:
    """A MemoryError from anywhere in a solve, by fixed or adaptive steps."""

    def greedy(t: float, y: Any) -> Any:
        if t > 0.3:
            raise MemoryError("Unable to allocate 1.00 TiB")
        return -y

    with pytest.raises(OutOfMemoryError, match=r"ran out in a solve of 1 components.*MiB.*1\.00 TiB.*use a larger"):
        hf.solve_fode(greedy, (0.0, 1.0), [1.0], 0.5, step=step, compile=False)


def test_other_errors_are_the_callers() -> None:
    """An error of the right-hand side is raised as it is."""

    def broken(t: float, y: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        hf.solve_fode(broken, (0.0, 1.0), [1.0], 0.5, step=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit of the address space")
def test_under_a_ulimit() -> None:
    """A process that may take some hundred megabytes more: an OutOfMemoryError with need and free."""
    found = run_python(
        "import resource, re, numpy as np, hpfracc as hf\n"
        "hf.solve_fode(lambda t, y: -y, (0., 1.), [1.], .5, step=.1, method='pece', compile=False)\n"
        "used = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)\n"
        "try:\n"
        "    hf.solve_fode(lambda t, y: -y, (0., 1.), np.ones(100), .5, step=1e-6, method='pece', compile=False)\n"
        "except MemoryError as error:\n"
        "    print(type(error).__name__, error)",
        timeout=500,
    )
    assert found.startswith("OutOfMemoryError") and "need at least 3,0" in found
