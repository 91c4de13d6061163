"""A circuit breaker: arms that failed are not used for a while, then probed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

from hpfracc.engine.locks import Guarded

#: Seconds for which an arm is not used after its first failure; doubled by each further one, up to the longest.
_FIRST_REST, _LONGEST_REST = 1.0, 600.0
#: Seconds in which the byte ceiling of an out-of-memory error doubles, because free memory changes.
_FADE = 60.0
#: A ceiling that has grown by this factor is dropped.
_FORGOTTEN = 4.0


class _Trouble(NamedTuple):
    failures: int
    until: float
    error: str


class CircuitBreaker(Guarded):
    """Remembers failures, unsupported kinds of work, and byte ceilings. Thread-safe.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}
        self._ceilings: dict[str, tuple[int, float]] = {}

    def allows(self, key: Hashable) -> str | None:
        """None if the arm may be used, otherwise the reason why not.

        After this time the arm is half-open: a success closes the breaker, a failure doubles the time.
        """
        trouble = self._troubles.get(key)
        if trouble is None:
            return None
        rest = trouble.until - self._clock()
        if rest <= 0.0:
            return None
        if rest == math.inf:
            return f"does not support this ({trouble.error})"
        times = "once" if trouble.failures == 1 else f"{trouble.failures} times"
        return f"failed {times}, last with {trouble.error}; tried again in {rest:.0f} s"

    def failure(self, key: Hashable, error: str) -> None:
        """Record a failure: the arm is not used, for longer each time. Failures of concurrent calls count as one."""
        with self._lock:
            before = self._troubles.get(key)
            if before is not None and before.until > self._clock():
                self._troubles[key] = before._replace(error=error)
                return
            failures = 1 if before is None else before.failures + 1
            rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (failures - 1))
            self._troubles[key] = _Trouble(failures, self._clock() + rest, error)

    def success(self, key: Hashable) -> None:
        """Record a success, which clears earlier failures."""
        if key in self._troubles:
            with self._lock:
                self._troubles.pop(key, None)

    def unsupported(self, key: Hashable, error: str) -> None:
        """Record that an arm does not support a kind of work, which does not change."""
        with self._lock:
            self._troubles[key] = _Trouble(1, math.inf, error)

    def exhausted(self, device: str, need: int) -> None:
        """Record that ``device`` ran out of memory at ``need`` bytes."""
        with self._lock:
            known = self.ceiling(device)
            self._ceilings[device] = (need if known is None else min(known, need), self._clock())

    def ceiling(self, device: str) -> int | None:
        """Bytes at which ``device`` is expected to run out of memory; grows with time, then None."""
        known = self._ceilings.get(device)
        if known is None:
            return None
        growth = 2.0 ** ((self._clock() - known[1]) / _FADE)
        return None if growth >= _FORGOTTEN else int(known[0] * growth)
