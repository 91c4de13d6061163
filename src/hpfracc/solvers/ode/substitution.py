"""Equations that are solved as other ones: in another time, with another state, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hpfracc.errors import InvalidInputError
from hpfracc.solvers.ode.fixed.grid import times_within
from hpfracc.solvers.ode.problem import Problem
from hpfracc.solvers.ode.result import FODEResult, later_times
from hpfracc.solvers.stepping.options import Options

Array = np.ndarray[Any, Any]


class Substitution:
    """The equation that is solved instead, with time x and state z. This one changes neither."""

    #: The kind of equation, in the plural, for errors; and what a failure adds to its message.
    what: ClassVar[str] = "such equations"
    remark: str = ""
    problem: Problem

    def __getstate__(self) -> dict[str, Any]:
        """Without the other equation, which a solution does not need."""
        return {name: value for name, value in self.__dict__.items() if name != "problem"}

    def inside(self, t: Array) -> Array:
        """The times x at the user's times t."""
        return t

    def outside(self, x: Array) -> Array:
        """The user's times t at the times x."""
        return x

    def states(self, x: Array, z: Array) -> Array:
        """The solution (..., d, N) from the states z, which may have more components, at the times x, shape (N,)."""
        return z

    def options(self, options: Options) -> Options:
        """The options of the other solve; times and functions are changed already."""
        return options

    def estimate(self, result: FODEResult, y: Array, options: Options) -> None:
        """Change the error estimate of the other solve to one of the solution ``y`` at its times."""

    def at(self, x: float, z: Array) -> tuple[float, Array]:
        """Time and solution at one time x."""
        place = np.array([x])
        return float(self.outside(place)[0]), self.states(place, z[..., None])[..., 0]

    def watched(self, event: Callable[..., Any]) -> Callable[..., Any]:
        """An event of the other equation."""

        def value(x: float, z: Array, *args: Any) -> Any:
            return event(*self.at(x, z), *args)

        for name in ("terminal", "direction"):
            setattr(value, name, getattr(event, name, 0))
        return value


@dataclass(frozen=True, slots=True)
class _Solution:
    """``sol(t)`` from that of the other equation."""

    whole: Any
    change: Substitution | None

    t_min = property(lambda self: float(self.change.outside(np.array([self.whole.t_min]))[0]))
    t_max = property(lambda self: float(self.change.outside(np.array([self.whole.t_max]))[0]))

    def __call__(self, t: Any) -> Array:
        if self.change is None:
            raise InvalidInputError("this solution was pickled, which drops the functions that it needs; solve again")
        times = times_within(t, self.t_min, self.t_max)
        x = np.clip(self.change.inside(times.reshape(-1)), self.whole.t_min, self.whole.t_max)
        y = self.change.states(x, self.whole(x))
        return y.reshape(*y.shape[:-1], *times.shape)


def solve_substituted(
    change: Substitution, options: Options, solve: Callable[[Problem, Options], FODEResult]
) -> FODEResult:
    """Solve the other equation with ``solve``; returns the result in the user's times and states."""
    if options.compile is True:
        raise InvalidInputError(f"compile=True: {change.what} are not compiled; omit compile")
    times, tell = options.t_eval, options.progress
    inner = replace(
        options,
        t_eval=None if times is None else change.inside(times),
        breakpoints=tuple(change.inside(np.array(options.breakpoints)).tolist()),
        events=tuple(change.watched(event) for event in options.events),
        progress=(lambda x, z: tell(*change.at(x, z))) if callable(tell) else tell,
    )
    result = solve(change.problem, change.options(inner))
    x, z = result.t, result.y
    if times is None:
        result.t = change.outside(x)
        kept = later_times(result.t)
        result.t, x, z = result.t[kept], x[kept], z[..., kept]
    else:
        result.t = times[: x.size]
    result.y = change.states(x, z)
    if result.y_events is not None and result.t_events is not None:
        moved = [np.moveaxis(each, 0, -1) for each in result.y_events]
        pairs = zip(result.t_events, moved, strict=True)
        result.y_events = [np.moveaxis(change.states(*pair), -1, 0) for pair in pairs]
        result.t_events = [change.outside(each) for each in result.t_events]
    change.estimate(result, result.y, options)
    if result.sol is not None:
        result.sol = _Solution(result.sol, change)
    if change.remark and (not result.success or result.stats.get("terminated")):
        result.message += f" ({change.remark})"
    return result
