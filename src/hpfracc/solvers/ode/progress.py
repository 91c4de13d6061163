"""Progress of a solve, and interrupts outside of its loop over steps.

Every loop over steps catches KeyboardInterrupt and returns the steps that were completed, unless the solve is part of
another call (`hpfracc._interrupts`). Before the loop there is only the initial value to return; after it
KeyboardInterrupt is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from hpfracc.solvers.ode.events import EventWatch
from hpfracc.solvers.ode.fixed.grid import initial_part
from hpfracc.solvers.ode.options import Options
from hpfracc.solvers.ode.problem import Problem, starts_infinite
from hpfracc.solvers.ode.result import FODEResult

__all__ = ["Report", "note_steps", "only_the_start", "progress_report", "watch_steps"]

#: ``report(t, y)`` with the newest point, or ``report(t, y, share)`` with the completed share of the work; ``y`` is a
#: function, called only if needed.
Report = Callable[..., None]


@contextmanager
def progress_report(wish: bool | Callable[..., Any], t0: float, t1: float, title: str) -> Iterator[Report]:
    """Reports the newest point while the block runs."""
    if callable(wish):
        yield lambda t, y, share=None: wish(t, y())
        return
    if not wish:
        yield lambda t, y, share=None: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    from hpfracc._progress import live_bar

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TextColumn("t = {task.fields[now]}"),
        TextColumn("{task.elapsed:.1f} s"),  # a remaining time would be wrong by orders: steps grow
    )
    with live_bar(*columns) as bar:
        task = bar.add_task(title, total=1.0, now=f"{t0:g}")

        def report(t: float, _: Callable[[], Any], share: float | None = None) -> None:
            bar.update(task, completed=(t - t0) / (t1 - t0) if share is None else share, now=f"{t:g}")

        yield report


#: Whether the current solve has left a loop over steps.
_stepped: ContextVar[list[bool] | None] = ContextVar("_stepped", default=None)


@contextmanager
def watch_steps() -> Iterator[list[bool]]:
    """Yields a list whose only item becomes True when a loop over steps has ended."""
    stepped = [False]
    token = _stepped.set(stepped)
    try:
        yield stepped
    finally:
        _stepped.reset(token)


def note_steps() -> None:
    """Record that a loop over steps has ended."""
    stepped = _stepped.get()
    if stepped is not None:
        stepped[0] = True


def only_the_start(problem: Problem, options: Options) -> FODEResult:
    """The result of a solve that was interrupted before its first step."""
    times = np.array([problem.t0])
    y = problem.y0[..., None]
    if problem.library == "numpy" and starts_infinite(problem):
        y = initial_part(problem, np.zeros(1)).reshape(y.shape)
    if options.t_eval is not None and not np.any(options.t_eval == problem.t0):
        times, y = times[:0], y[..., :0]
    message = f"Interrupted at t = {problem.t0:g}, before the first step: here is the initial value."
    stats = {"steps": 0, "interrupted": True, "terminated": False}
    t_events, y_events = EventWatch(options.events, ()).collected(problem.shape, problem.dtype)
    return FODEResult(times, y, False, message, 0, stats=stats, t_events=t_events, y_events=y_events)
