"""An interrupt by the user outside of the loop over steps.

Every loop over steps catches KeyboardInterrupt and returns the steps that were completed. What comes before the loop
has nothing but the initial value to return; what comes after it raises KeyboardInterrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._refusals import starts_infinite
from hpfracc.solvers.ode._result import FODEResult
from hpfracc.solvers.ode._uniform import initial_part

__all__ = ["note_steps", "only_the_start", "watch_steps"]

#: Whether the solve under way has left a loop over steps.
_stepped: ContextVar[list[bool] | None] = ContextVar("_stepped", default=None)


@contextmanager
def watch_steps() -> Iterator[list[bool]]:
    """A list whose item becomes True when a loop over steps has ended."""
    stepped = [False]
    token = _stepped.set(stepped)
    try:
        yield stepped
    finally:
        _stepped.reset(token)


def note_steps() -> None:
    """Tell that a loop over steps has ended: the initial value is no longer all that there is."""
    stepped = _stepped.get()
    if stepped is not None:
        stepped[0] = True


def only_the_start(problem: Problem, options: Options) -> FODEResult:
    """The result of a solve that was broken off while it looked at the right-hand side for the first time."""
    times = np.array([problem.t0])
    y = problem.y0[..., None]
    if problem.library == "numpy" and starts_infinite(problem):
        y = initial_part(problem, np.zeros(1)).reshape(y.shape)
    if options.t_eval is not None and not np.any(options.t_eval == problem.t0):
        times, y = times[:0], y[..., :0]
    happened: tuple[Any, Any] = (None, None)
    if options.events:
        happened = (
            [np.empty(0) for _ in options.events],
            [np.empty((0, *problem.shape), problem.dtype) for _ in options.events],
        )
    return FODEResult(
        times,
        y,
        False,
        f"Interrupted at t = {problem.t0:g}, before the first step: here is the initial value.",
        0,
        stats={"steps": 0, "interrupted": True, "terminated": False},
        t_events=happened[0],
        y_events=happened[1],
    )
