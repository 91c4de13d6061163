"""How long does a call take? Repeated until the answer is stable, or until it costs too much to know better."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["clock", "lower_quartile", "repeat"]

#: A sample is at least this long: the clock's own cost, some 50 ns, is then below half a percent.
_SHORTEST_SAMPLE = 20e-6
#: Samples of a call that is quick, and of one that is not.
_MOST_SAMPLES, _LEAST_SAMPLES = 32, 5
#: Beyond these a call is run only so often after its warm-up: (seconds a call takes, runs).
_SLOW = ((0.1, 1), (0.03, 2), (0.01, 3))


def clock(call: Callable[[], Any], wait: Callable[[], Any] | None = None, times: int = 1) -> float:
    """Seconds of one of ``times`` calls in a row; ``wait`` is called after the last, and waits for their work."""
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
    """Seconds of one call, several times over, after a warm-up.

    Parameters
    ----------
    call : callable
        What is timed.
    wait : callable, optional
        Waits until the work of all calls is done, where a call's return does not mean that.
    effort : float
        Seconds that a quick call is repeated for; a slow one is repeated a few times.
    limit : float
        No further run is begun that would take it past this many seconds.
    """
    warm = clock(call, wait)
    spent = warm
    for slow, runs in _SLOW:
        if warm >= slow:
            # Of a call this slow the warm-up is a sample like any other.
            samples = [warm]
            for _ in range(runs):
                if spent + warm > limit:
                    break
                samples.append(clock(call, wait))
                spent += samples[-1]
            return samples
    # A warm-up is slower than what follows: caches are cold.
    calls = max(1, round(_SHORTEST_SAMPLE / max(warm, 1e-9)))
    once = clock(call, wait, calls)
    calls = max(1, round(_SHORTEST_SAMPLE / max(once, 1e-9)))
    count = round(effort / max(calls * once, 1e-9))
    count = min(max(count, _LEAST_SAMPLES), _MOST_SAMPLES)
    # Longer samples rather than more of them: disturbances come in bursts, and a few samples must be free of them.
    calls = max(calls, round(effort / count / max(once, 1e-9)))
    samples = []
    for _ in range(count):
        samples.append(clock(call, wait, calls))
        spent += samples[-1] * calls
        if spent > limit:
            break
    return samples


def lower_quartile(samples: Sequence[float]) -> float:
    """The 25th percentile: what a call takes when nothing is in its way, without trusting a single lucky one."""
    return sorted(samples)[(len(samples) - 1) // 4]
