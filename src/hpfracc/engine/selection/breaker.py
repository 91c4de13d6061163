"""Arms that failed are left alone for a while, and given another chance later."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hpfracc.engine.locks import Guarded

__all__ = ["CircuitBreaker"]

#: Seconds an arm rests after its first failure; twice as long after each further one, up to the longest.
_FIRST_REST, _LONGEST_REST = 1.0, 600.0
#: Seconds in which half of what an out-of-memory taught is forgotten: memory comes and goes.
_FADE = 60.0
#: A ceiling this many times higher than where memory ran out is none.
_FORGOTTEN = 4.0


@dataclass(slots=True)
class _Trouble:
    failures: int
    until: float
    error: str


class CircuitBreaker(Guarded):
    """Remembers failures per key, unsupported kinds of work, and how many bytes were too many. Thread-safe.

    Parameters
    ----------
    clock : callable
        A monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._troubles: dict[Hashable, _Trouble] = {}
        self._unsupported: dict[Hashable, str] = {}
        self._ceilings: dict[str, tuple[int, float]] = {}

    def allows(self, key: Hashable) -> str | None:
        """None if the arm may be tried, else a sentence why not.

        After its rest it may be tried again, on probation: a success clears it, a failure doubles its rest.
        """
        trouble = self._troubles.get(key)
        if trouble is None:
            return None
        rest = trouble.until - self._clock()
        if rest <= 0.0:
            return None
        times = "once" if trouble.failures == 1 else f"{trouble.failures} times"
        return f"failed {times}, last with {trouble.error}; tried again in {rest:.0f} s"

    def failure(self, key: Hashable, error: str) -> None:
        """Note a failure: the arm rests, longer each time. Calls that were under way already count as one."""
        with self._lock:
            before = self._troubles.get(key)
            if before is not None and before.until > self._clock():
                before.error = error
                return
            failures = 1 if before is None else before.failures + 1
            rest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (failures - 1))
            self._troubles[key] = _Trouble(failures, self._clock() + rest, error)

    def success(self, key: Hashable) -> None:
        """The probe went well: the slate is clean."""
        if key in self._troubles:
            with self._lock:
                self._troubles.pop(key, None)

    def unsupported(self, key: Hashable, error: str) -> None:
        """Note that a kind of work is beyond an arm, for good."""
        with self._lock:
            self._unsupported[key] = error

    def masked(self, key: Hashable) -> str | None:
        """Why a kind of work is beyond an arm, or None."""
        error = self._unsupported.get(key)
        return None if error is None else f"does not support this ({error})"

    def exhausted(self, device: str, need: int) -> None:
        """Note that ``need`` bytes were more than ``device`` had."""
        with self._lock:
            known = self.ceiling(device)
            self._ceilings[device] = (need if known is None else min(known, need), self._clock())

    def ceiling(self, device: str) -> int | None:
        """Bytes from which on ``device`` must be expected to run out; rises with time and is then forgotten."""
        known = self._ceilings.get(device)
        if known is None:
            return None
        growth = 2.0 ** ((self._clock() - known[1]) / _FADE)
        return None if growth >= _FORGOTTEN else int(known[0] * growth)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._troubles.clear()
            self._unsupported.clear()
            self._ceilings.clear()
