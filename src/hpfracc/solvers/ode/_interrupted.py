"""A break by the user before any step was taken: the initial value is what there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpfracc.solvers.ode._options import Options
from hpfracc.solvers.ode._problem import Problem
from hpfracc.solvers.ode._refusals import starts_infinite
from hpfracc.solvers.ode._result import FODEResult
from hpfracc.solvers.ode._uniform import initial_part

__all__ = ["only_the_start"]


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
