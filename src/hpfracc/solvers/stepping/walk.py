"""The walk over an interval: where steps stop, what is watched and recorded on the way, and how it ends.

And the passes over it, each with a smaller share of the tolerance for a step, until the global error is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from hpfracc.solvers.stepping.events import EventWatch
from hpfracc.solvers.stepping.options import Options
from hpfracc.solvers.stepping.step import AdaptiveStep
from hpfracc.solvers.stepping.system import NotFiniteError, StepFailedError

Array = np.ndarray[Any, Any]

#: The message of a solve that succeeded.
REACHED = "The end of the interval was reached."
#: Number of breaking points of a delay at which a step ends. The solution gains alpha in smoothness at each.
_MAX_BREAKS = 64


def interrupted_at(t: float) -> str:
    """The message of a solve that Ctrl-C ended."""
    return f"Interrupted at t = {t:g}: this is the solution up to then."


class Walk:
    """One walk over an interval: what is watched and recorded on the way, and how it ended.

    Parameters
    ----------
    options : Options
        Its ``max_steps`` and ``events``.
    end : float
        The end of the interval, as the user counts time.
    args : tuple
        Further arguments of the events.
    wanted : array, optional
        The times at which the solution is recorded, instead of at the steps.

    Attributes
    ----------
    success, interrupted, message : bool, bool, str
        How the walk ended.
    ended : float or None
        The time of a terminal event.
    times, kept : lists
        What was recorded. Its times may be counted otherwise than the user's, see :meth:`time`.
    point : pair or None
        The newest time, and the state then.
    """

    def __init__(self, options: Options, end: float, args: tuple[Any, ...] = (), wanted: Array | None = None) -> None:
        self.options, self._end, self.wanted, self.next = options, end, wanted, 0
        self.success, self.interrupted, self.message = True, False, REACHED
        self.events = EventWatch(options.events, args)
        self.ended: float | None = None
        self.times, self.kept = list[float](), list[Any]()
        self.point: tuple[float, Any] | None = None

    # -- what differs from walk to walk -------------------------------------------------------------------------------

    def reached(self) -> float:
        """The time that was reached, as the user counts it."""
        raise NotImplementedError

    def between(self, times: Array) -> Iterable[Any]:
        """The states at times not after the newest one."""
        raise NotImplementedError

    def time(self, t: float) -> float:
        """A time that is recorded, as the user counts it."""
        return t

    def shown(self, state: Any) -> Array:
        """A state as the events receive it."""
        return np.asarray(state)

    def settled(self, t: float) -> float:
        """The time up to which the solution is final once it has reached ``t``."""
        return t

    def keep(self, times: Sequence[float], states: Iterable[Any]) -> None:
        """Keep the states at some times."""
        self.times.extend(times)
        self.kept.extend(states)

    # -- what all of them share ---------------------------------------------------------------------------------------

    def follow(self, steps: Callable[[], str | None]) -> None:
        """Take the steps, which return why they failed, until the end, a terminal event, a failure or an interrupt."""
        try:
            failure = steps()
        except KeyboardInterrupt:
            self.interrupted, failure = True, interrupted_at(self.reached())
        except NotFiniteError as error:
            failure = f"{error}: check the right-hand side, the data and the initial values."
        except StepFailedError as error:
            failure = str(error)
        if failure is not None:
            self.fail(failure)

    def fail(self, message: str) -> bool:
        """End with a failure; returns False."""
        self.success, self.message = False, message
        return False

    def in_time(self) -> bool:
        """Whether the solve may go on; it ends after ``max_seconds``."""
        if perf_counter() < self.options.clock.next:
            return True
        why = self.options.clock.look(self.reached(), self._end)
        return why is None or self.fail(why)

    def too_many(self, remedy: str) -> str:
        """The reason to end where ``max_steps`` are not enough."""
        reach = f"max_steps={self.options.max_steps} steps reach t = {self.reached():g} of {self._end:g}"
        return f"{reach}: raise max_steps, or {remedy}."

    def end_at(self, t: float) -> None:
        """End with a terminal event at this time."""
        self.ended, self.message = t, f"A terminal event happened at t = {t:g}."

    def record(self, t: float, state: Any, *, last: bool = False, kept: bool = True) -> bool:
        """Record a point, the ``last`` one or not, and the events since the one before; returns whether to go on.

        Without requested times the point itself is ``kept``, or not.
        """
        before, end = self.point, None
        self.point = t, state
        if self.options.events and before is not None:
            left, start = before

            def at(when: float) -> Array:
                return self.shown(start if when == left else next(iter(self.between(np.array([when])))))

            states = np.stack([self.shown(start), self.shown(state)], axis=-1)
            end = self.events.watch(np.array([left, t]), states, at, self.time)
        if end is not None:
            self.end_at(self.time(end))
        if self.wanted is not None:
            # The last requested time may exceed the last step by rounding.
            self._deliver(end if end is not None else math.inf if last else self.settled(t))
        elif end is not None:
            self.keep([end], self.between(np.array([end])))
        elif kept:
            self.keep([t], [state])
        return end is None

    def _deliver(self, until: float) -> None:
        """Record the requested times up to ``until``."""
        assert self.wanted is not None
        first, self.next = self.next, int(np.searchsorted(self.wanted, until, side="right"))
        if self.next > first:
            found = self.wanted[first : self.next]
            self.keep(found.tolist(), self.between(found))


class AdaptiveWalk(Walk):
    """A walk by adaptive steps, with a fixed share of the tolerance for each.

    Attributes
    ----------
    step : AdaptiveStep or None
        Takes the steps; None before it has a first value.
    stops : list of float
        Times after the start at which steps end and start anew behind, and the end.
    longest : float
        The longest step that the equation allows.
    repeats : str
        Why another pass is needed though the estimated error is within the tolerance.
    """

    step: AdaptiveStep | None = None
    stops: Sequence[float]
    longest, repeats = math.inf, ""

    def begin(self) -> AdaptiveStep:
        """Make the steps."""
        raise NotImplementedError

    def enter(self, number: int, stop: float) -> None:
        """Called before the steps to the stop of this number."""
        raise NotImplementedError

    def note(self, step: AdaptiveStep) -> bool:
        """Record the newest step; returns whether to go on."""
        raise NotImplementedError

    def explain(self, failure: str) -> str:
        """The reason why a step failed, in words."""
        raise NotImplementedError

    def run(self, most_ratio: float = math.inf) -> None:
        """Step until the end, a terminal event, a failure, an interrupt, or a ratio of the error to the tolerance."""
        self.follow(lambda: self._steps(most_ratio))

    def _steps(self, most_ratio: float) -> str | None:
        """Take the steps; returns the reason if they fail."""
        step, most, clock = self.begin(), self.options.max_steps, self.options.clock
        self.step = step
        for number, stop in enumerate(self.stops):
            self.enter(number, stop)
            if number:
                step.restart()
            while step.tau < stop:
                if step.accepted >= most:
                    return self.too_many(f"loosen rtol={self.options.rtol:g}")
                failure = step.advance(min(stop, step.tau + self.longest))
                if failure is not None:
                    return self.explain(failure)
                if not self.note(step) or (step.ratio > most_ratio and step.jumped is None):
                    return None
                if perf_counter() > clock.next and step.tau < self.stops[-1] and not self.in_time():
                    return None
        return None


def find_stops(breaks: Sequence[float], delays: Sequence[float], length: float) -> list[float]:
    """Breakpoints within an interval and their sums with delays, and the end."""
    found, layer = list(breaks), [0.0, *breaks]  # sums of the same number of delays
    for _ in range(1, _MAX_BREAKS):
        sums = sorted(before + lag for before in layer for lag in delays)
        layer = _distinct([total for total in sums if total < length * (1.0 - 1e-12)], [])
        found += _distinct(layer, found)
        if not layer or len(found) >= _MAX_BREAKS * len(delays):
            break
    return [*sorted(found), length]


def _distinct(times: list[float], known: list[float]) -> list[float]:
    """Those of ``times`` that differ from ``known`` and from each other by more than rounding."""
    kept: list[float] = []
    for each in times:
        if all(abs(each - other) > 1e-12 * each for other in (*known, *kept[-1:])):
            kept.append(each)
    return kept


#: Maximum number of passes to bring the global error below the tolerance.
MAX_PASSES = 6
#: A pass is abandoned when its global error exceeds this multiple of the tolerance.
HOPELESS = 4.0
#: Multiple of the tolerance that counts as reached after the last pass, because error estimates are rough.
TOLERATED = 10.0

W = TypeVar("W", bound=Any)


def smaller_share(share: Any, ratio: Any, module: Any = np) -> Any:
    """The share of the tolerance for a step after a pass with this ratio of the error to the tolerance."""
    return share * module.clip(0.5 / module.maximum(ratio, 0.1), 0.02, 0.7)


def run_passes(
    attempt: Callable[[float, float], W], notes: list[str], share: float = 1.0, most: int = MAX_PASSES
) -> tuple[W, int]:
    """The last of at most ``most`` passes, and their number.

    Parameters
    ----------
    attempt : callable
        ``attempt(share, most_ratio)``: a finished walk, abandoned where its error is above ``most_ratio`` times the
        tolerance. Its ``repeats`` says why another one is needed though the error is small.
    notes : list of str
        Where it is noted why a pass is repeated.
    """
    for number in range(1, most + 1):
        walk = attempt(share, math.inf if number == most else HOPELESS)
        step = walk.step
        if number == most or not walk.success or step.jumped is not None or not (step.ratio > 1.0 or walk.repeats):
            break
        if step.ratio > 1.0:
            notes.append(f"pass {number}: the global error was {step.ratio:.2g} times the tolerance")
            share = float(smaller_share(share, step.ratio))
        else:
            notes.append(f"pass {number}: {walk.repeats}")
    return walk, number


def inaccurate(ratio: float, rtol: float, jump: float | None = None, cause: str = "") -> str:
    """The message where the estimated error is ``ratio`` times the tolerance; ``jump`` is the time of a jump."""
    if jump is not None and not cause:
        cause = (
            f"the right-hand side jumps near t = {jump:g}, and times close behind it are not resolved by rounding. "
            f"Give all times of jumps as breakpoints=[...], or loosen rtol={rtol:g}."
        )
    cause = cause or (
        f"the equation amplifies errors, or rtol={rtol:g} is too small. Loosen it, shorten the interval, or, for a "
        "chaotic solution that no method can follow, use method='adaptive_local'."
    )
    return f"The end was reached, but the error may be {ratio:.2g} times the tolerance: {cause}"
