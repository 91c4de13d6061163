"""How much of the house one step walks through: calls of our functions, and changes of file, of settled calls.

A sample that changes rooms at each step is slow in Python and hard to follow; seconds would depend on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpfracc as hf

_OURS = str(Path(hf.__file__).parent)


def walked(call: Callable[[], Any], before: int) -> tuple[Any, list[str], int]:
    """The result of ``call()`` after ``before`` others, the files of its calls of our functions, and their changes."""
    for _ in range(before):
        call()
    files: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            files.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        found = call()
    finally:
        sys.setprofile(None)
    return found, files, sum(one != other for one, other in pairwise(files))


def _decay(**more: Any) -> Callable[[], Any]:
    return lambda: hf.solve_fode(lambda t, y: -y, (0.0, 2.0), [1.0], 0.5, backend="numpy", compile=False, **more)


def _reaction(**more: Any) -> Any:
    x = np.linspace(0.0, 1.0, 33)
    return hf.solve_fpde(
        lambda t, u: u * (1.0 - u), (0.0, 1.0), np.sin(np.pi * x), x=x, space=hf.pde.Diffusion(0.1),
        boundary="dirichlet", alpha=0.7, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "most_calls", "most_changes"),
    [(_decay(), 35, 12), (_decay(step=2.0**-9), 3.0, 0.4), (_reaction, 70, 30)],
    ids=["solve_fode adaptive", "solve_fode with a step", "solve_fpde"],
)
def test_a_step_walks_through_few_functions_and_files(
    call: Callable[[], Any], most_calls: float, most_changes: float
) -> None:
    """Per step of all passes, rejected ones included, on the fifth call."""
    result, files, changes = walked(call, 4)
    steps = result.stats.get("steps_in_all", result.stats["steps"] + result.stats.get("rejected", 0))
    assert result.success
    assert result.stats.get("passes", 1) == 1 or "steps_in_all" in result.stats
    assert len(files) <= most_calls * steps
    assert changes <= most_changes * steps


def test_a_settled_operator_walks_through_few_functions_and_files() -> None:
    t = np.linspace(0.0, 1.0, 1001)
    y = np.sin(t)
    _, files, changes = walked(lambda: hf.caputo(y, t, 0.5), 59)
    assert len(files) <= 22
    assert changes <= 9


@pytest.mark.parametrize("more", [{}, {"method": "l1", "step": 0.01}])
def test_a_settled_solve_of_a_partial_equation_hardly_selects(more: dict[str, Any]) -> None:
    """At most one call in a hundred chooses how to compute."""
    _, files, _ = walked(lambda: _reaction(**more), 4)
    assert 100 * sum("/engine/selection/" in file for file in files) <= len(files)
