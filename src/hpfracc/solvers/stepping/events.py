"""What is watched while a solve takes its steps: progress and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from hpfracc._interrupts import live_bar
from hpfracc.errors import ShapeError, UnsupportedDtypeError

Array = np.ndarray[Any, Any]

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
    # A remaining time would be wrong by orders: steps grow.
    texts = "t = {task.fields[now]}", "{task.elapsed:.1f} s"
    with live_bar(title, 1.0, *texts, counts=False, now=f"{t0:g}") as update:

        def report(t: float, _: Callable[[], Any], share: float | None = None) -> None:
            update(completed=(t - t0) / (t1 - t0) if share is None else share, now=f"{t:g}")

        yield report


class EventWatch:
    """Detects changes of sign of ``event(t, y, *args)``, and locates them.

    As in SciPy, a positive or negative ``event.direction`` selects rising or falling zeros, and ``event.terminal``
    (True, or the number of occurrences) ends the solve.
    """

    def __init__(self, events: tuple[Callable[..., Any], ...], args: tuple[Any, ...]) -> None:
        self.events, self.args = events, args
        self.times: list[list[float]] = [[] for _ in events]
        self.states: list[list[Array]] = [[] for _ in events]

    def _value(self, number: int, t: float, y: Array) -> float:
        value = np.asarray(self.events[number](t, np.array(y), *self.args))
        if value.size != 1:
            raise ShapeError(f"events[{number}](t, y) returned shape {value.shape}; return one number, such as y[0]")
        if value.dtype.kind not in "fiub":
            raise UnsupportedDtypeError(f"events[{number}](t, y) returned {value.dtype}; return a real number")
        return float(value.reshape(()))

    def watch(
        self,
        times: Array,
        states: Array,
        solution: Callable[[float], Array],
        clock: Callable[[float], float] = lambda t: t,
    ) -> float | None:
        """Check new points, ``states`` of shape (..., d, n); returns the time of a terminal event, or None.

        The first point is the last one of the previous call. ``solution(t)`` interpolates between them. The events
        receive, and what is found has, the time ``clock(t)``.
        """
        found: list[tuple[float, int]] = []
        for number, event in enumerate(self.events):
            direction = getattr(event, "direction", 0)
            values = [self._value(number, clock(float(t)), states[..., n]) for n, t in enumerate(times)]
            for n, (before, now) in enumerate(pairwise(values)):
                if _crosses(before, now, direction):
                    found.append((self._root(number, float(times[n]), float(times[n + 1]), solution, clock), number))
        for t, number in sorted(found):
            self.states[number].append(np.array(solution(t)))
            self.times[number].append(clock(t))
            terminal = getattr(self.events[number], "terminal", False)
            if terminal and len(self.times[number]) >= int(terminal):
                return t
        return None

    def _root(self, number: int, a: float, b: float, solution: Callable[..., Array], clock: Any) -> float:
        from scipy.optimize import brentq

        def value(t: float) -> float:
            return self._value(number, clock(t), solution(t))

        low, high = value(a), value(b)
        if high == 0.0 or not low * high < 0.0:  # at the step, up to rounding
            return b
        return float(brentq(value, a, b, xtol=4e-15 * max(abs(a), abs(b)), rtol=4e-15))

    def collected(self, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
        """Lists of the times and states of all events so far; None if no events are watched."""
        if not self.events:
            return None, None
        states = [np.stack(each) if each else np.empty((0, *shape), dtype) for each in self.states]
        # An interrupt may come between a state and its time.
        times = [np.array(each, dtype=np.float64) for each in self.times]
        states = [state[: len(time)] for state, time in zip(states, times, strict=True)]
        return times, states


def _crosses(before: float, now: float, direction: float) -> bool:
    # A zero exactly at a step counts once, when it is reached.
    return (direction >= 0 and before < 0.0 <= now) or (direction <= 0 and before > 0.0 >= now)
