"""Timing tools: repeated runs of a call, a time limit, and how the time grows with the work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["TimeBox", "TimeGrowth", "clock", "lower_quartile", "repeat"]

#: Minimum length of a sample, so that the cost of the clock, about 50 ns, is below half a percent.
_SHORTEST_SAMPLE = 20e-6
#: Maximum and minimum number of samples of a quick call.
_MAX_SAMPLES, _MIN_SAMPLES = 32, 5
#: For slow calls, runs after the warm-up: (seconds a call takes, runs).
_SLOW = ((0.1, 1), (0.03, 2), (0.01, 3))


def clock(call: Callable[[], Any], wait: Callable[[], Any] | None = None, times: int = 1) -> float:
    """Mean seconds of ``times`` consecutive calls; ``wait`` is called after the last, and waits for their work."""
    repeats = range(times)
    begin = time.perf_counter()
    for _ in repeats:
        call()
    if wait is not None:
        wait()
    return (time.perf_counter() - begin) / times


def repeat(
    call: Callable[[], Any], wait: Callable[[], Any] | None = None, *, effort: float = 0.01, limit: float = 60.0
) -> list[float]:
    """Seconds of one call, measured several times after a warm-up.

    Parameters
    ----------
    call : callable
        The call to time.
    wait : callable, optional
        Waits until the work of all calls is done, for asynchronous calls.
    effort : float
        Seconds for which a quick call is repeated; a slow one is repeated a few times.
    limit : float
        Seconds after which no further run is started.
    """
    warm = clock(call, wait)
    spent = warm
    for slow, runs in _SLOW:
        if warm >= slow:
            # For a call this slow the warm-up is a sample too.
            samples = [warm]
            for _ in range(runs):
                if spent + warm > limit:
                    break
                samples.append(clock(call, wait))
                spent += samples[-1]
            return samples
    # A warm-up is slower than later calls, because caches are cold.
    calls = max(1, round(_SHORTEST_SAMPLE / max(warm, 1e-9)))
    once = clock(call, wait, calls)
    calls = max(1, round(_SHORTEST_SAMPLE / max(once, 1e-9)))
    count = round(effort / max(calls * once, 1e-9))
    count = min(max(count, _MIN_SAMPLES), _MAX_SAMPLES)
    # Longer samples instead of more of them: disturbances come in bursts, and a few samples must be free of them.
    calls = max(calls, round(effort / count / max(once, 1e-9)))
    samples = []
    for _ in range(count):
        samples.append(clock(call, wait, calls))
        spent += samples[-1] * calls
        if spent > limit:
            break
    return samples


def lower_quartile(samples: Sequence[float]) -> float:
    """The 25th percentile: the time of an undisturbed call, robust against a single lucky one."""
    return sorted(samples)[(len(samples) - 1) // 4]


class TimeBox:
    """A time limit that starts now and can be paused.

    Parameters
    ----------
    seconds : float
        The limit; with ``math.inf`` time is only counted.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.beside = 0.0
        self._begin = time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds used, without pauses."""
        return time.perf_counter() - self._begin - self.beside

    @property
    def left(self) -> float:
        """Remaining seconds, at least 0."""
        return max(0.0, self.seconds - self.spent)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time inside the block does not count."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.beside += time.perf_counter() - begin


#: Steepest growth of time with work (exponent): caches overflow.
_STEEPEST = 1.2


class TimeGrowth:
    """How the time of one arm grows with its work, to predict whether a larger size is affordable."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []

    def add(self, work: float, seconds: float) -> None:
        """Add a measured time."""
        self._points.append((math.log(max(work, 1.0)), math.log(max(seconds, 1e-9))))
        self._points.sort()

    def least(self, work: float) -> float:
        """Lower bound in seconds; 0 if nothing is known."""
        return self._at(work, alone=0.0, steepest=1.0)

    def most(self, work: float) -> float:
        """Upper bound in seconds; 0 if nothing is known."""
        return self._at(work, alone=1.0, steepest=_STEEPEST, flattest=1.0)

    def expected(self, work: float) -> float:
        """Expected seconds; 0 if nothing is known, so that it is tried first."""
        return self._at(work, alone=0.5, steepest=1.0)

    def _at(self, work: float, *, alone: float, steepest: float, flattest: float = 0.0) -> float:
        if not self._points:
            return 0.0
        x, (xs, ys) = math.log(max(work, 1.0)), zip(*self._points, strict=True)
        if x <= xs[-1]:
            return math.exp(np.interp(x, xs, ys))  # constant below all measured sizes
        slope = alone
        if len(xs) > 1 and xs[-1] > xs[-2]:
            slope = (ys[-1] - ys[-2]) / (xs[-1] - xs[-2])
        return math.exp(ys[-1] + min(max(slope, flattest), steepest) * (x - xs[-1]))
