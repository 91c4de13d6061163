"""Times of calls, measured without waiting for a device.

Work on the host is timed by the host's clock. Asynchronous work is timed by a pair of marks in the device's
queue, which is read when the device has passed them; until then the pair is pending here.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from hpfracc.engine.backends.base import Adapter, DeviceTimer
from hpfracc.engine.execution.bind import TransferLog
from hpfracc.engine.selection.knowledge import Knowledge

__all__ = ["PendingTimes", "log_transfer", "pending_times"]

logger = logging.getLogger("hpfracc.engine")

#: Maximum number of pending marks. Older ones are dropped unread, which loses one sample each.
_MAX_PENDING = 256


class PendingTimes:
    """Pending timers, and the callback for each time."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[DeviceTimer, Callable[[float], None]]] = deque(maxlen=_MAX_PENDING)
        self._lock = threading.Lock()

    def add(self, timer: DeviceTimer, then: Callable[[float], None]) -> None:
        """Call ``then(seconds)`` in a later :meth:`settle`."""
        with self._lock:
            self._waiting.append((timer, then))

    def settle(self) -> None:
        """Report the times that have become known; never waits for a device."""
        if not self._waiting:
            return
        with self._lock:
            entries = list(self._waiting)
            self._waiting.clear()
        for timer, then in entries:
            try:
                seconds = timer.seconds()
                if seconds is not None:
                    then(seconds)
            except Exception:  # a sample is lost; the current call is unrelated to it
                logger.debug("a timer could not be read", exc_info=True)
                continue
            if seconds is None:
                self.add(timer, then)

    def reset(self) -> None:
        """Discard pending timers, because a forked child must not read its parent's marks."""
        self._lock = threading.Lock()
        self._waiting.clear()


pending_times = PendingTimes()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pending_times.reset)


#: Number of first copies that are all timed, and interval of timed copies afterwards. Marks in a queue cost little, but
#: reading and storing hundreds of them is measurable in calls of a millisecond (``benchmarks/convolution.py``).
_TIMED_AT_FIRST, _ONE_IN = 16, 64
_UNTIMED = contextlib.nullcontext()


def log_transfer(knowledge: Knowledge) -> TransferLog:
    """A transfer log that learns the cost of copies."""
    number = itertools.count()

    def log(adapter: Adapter, route: str, size: int, device: str) -> contextlib.AbstractContextManager[Any]:
        count = next(number)
        if count >= _TIMED_AT_FIRST and count % _ONE_IN:
            return _UNTIMED
        timer = adapter.timer(device)
        return _UNTIMED if timer is None else _timed(timer, knowledge, route, size)

    return log


@contextlib.contextmanager
def _timed(timer: DeviceTimer, knowledge: Knowledge, route: str, size: int) -> Iterator[None]:
    timer.start()
    yield
    timer.stop()
    pending_times.add(timer, lambda seconds: knowledge.observe_transfer(route, size, seconds))
