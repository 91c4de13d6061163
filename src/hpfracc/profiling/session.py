"""The spans recorded since the last reset, in a ring buffer without a lock, with devices."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from hpfracc.profiling.clocks import DeviceClock, all_clocks, find_clock
from hpfracc.profiling.device_time import DeviceTime, Timeline

#: Maximum number of unread pairs of marks, and number of pairs that are read at once above it. Reading can take longer
#: than setting, so it is deferred until the profile is read, as far as the driver can hold the events.
_PENDING, _AT_ONCE = 8192, 32


def running_loop() -> Any:
    """The event loop that runs in this thread; None without one.

    Importing asyncio takes long, and without it there is no loop. With it and without a loop, the exception costs
    0.6 microseconds.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.get_running_loop()
    except (RuntimeError, AttributeError):  # no loop runs, or another thread is just importing asyncio
        return None


@dataclass(slots=True, eq=False)
class ThreadLane:
    """Where spans run: a thread, or a task of the thread in the lane ``thread``. It lives as long as they do."""

    name: str
    thread: ThreadLane | None = None


class Session:
    """The ring buffer of spans, counts and devices.

    Spans (of :mod:`hpfracc.profiling.spans`) are appended to a deque and counted by ``itertools.count``, each a single
    C call and so atomic.
    """

    def __init__(self, capacity: int) -> None:
        self.spans: deque[Any] = deque(maxlen=capacity)
        self.keep = self.spans.append
        self._ids, self._ends = itertools.count(1), itertools.count(1)
        self.issue: Callable[[], int] = self._ids.__next__
        self.count_end: Callable[[], int] = self._ends.__next__
        self._looks = 0
        self._lock = threading.Lock()
        self.local = threading.local()
        self._tasks: weakref.WeakKeyDictionary[Any, ThreadLane] = weakref.WeakKeyDictionary()
        self._devices: dict[str, tuple[DeviceClock, str, Timeline | None]] = {}
        self._unknown: dict[str, int] = {}
        self.timelines: dict[tuple[str, str], Timeline] = {}
        self.pending: deque[DeviceTime] = deque()
        self.begun_ns = perf_counter_ns()
        self.begun_unix = time.time()

    def new_lane(self) -> ThreadLane:
        """The lane of the current thread."""
        self.local.lane = lane = ThreadLane(threading.current_thread().name)
        return lane

    def task_lane(self, thread: ThreadLane, loop: Any) -> ThreadLane:
        """The lane of the current task of ``loop``; the thread's own lane outside of tasks."""
        import asyncio

        task = asyncio.current_task(loop)
        if task is None:
            return thread
        lane = self._tasks.get(task)
        if lane is None:
            lane = self._tasks[task] = ThreadLane(task.get_name(), thread)
        return lane

    def counts(self) -> tuple[int, int]:
        """Numbers of spans started and ended. Reading a counter advances it, which is corrected for."""
        with self._lock:
            self._looks += 1
            return self.issue() - self._looks, self.count_end() - self._looks

    def snapshot(self) -> tuple[list[Any], int, int]:
        """The kept spans, and the numbers of dropped and open ones."""
        begun, ended = self.counts()
        while True:
            try:
                kept = list(self.spans)
                break
            except RuntimeError:  # the garbage collector ran code that ended a span meanwhile
                continue
        return kept, max(0, ended - len(kept)), max(0, begun - ended)

    def device_time(self, device: str) -> DeviceTime:
        """A new device part of a span on ``device``."""
        known = self._devices.get(device)
        if known is None:
            libraries = len(all_clocks())
            found = None if self._unknown.get(device) == libraries else find_clock(device)
            if found is None:  # looked up once more when another library is imported
                self._unknown[device] = libraries
                return DeviceTime(device, None, None, "no clock")
            clock, full = found
            known = self._devices[device] = clock, full, self._timeline(clock, full) if clock.marks else None
        clock, full, timeline = known
        return DeviceTime(full, clock, timeline)

    def _timeline(self, clock: DeviceClock, device: str) -> Timeline:
        with self._lock:
            known = self.timelines.get((clock.name, device))
            if known is None:
                known = self.timelines[clock.name, device] = Timeline(clock, device)
        return known

    def settle_later(self, part: DeviceTime) -> None:
        """Read the marks of ``part`` when the device has passed them."""
        if part.waits_for_marks:
            self.pending.append(part)
            if len(self.pending) > _PENDING:
                self._settle_some()

    def _settle_some(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                part = self.pending.popleft()
            except IndexError:
                return
            if not part.settle():
                self.pending.appendleft(part)
                return

    def settle(self) -> None:
        """Read every mark; waits for devices that are still working."""
        waiting = list(self.pending)
        for timeline in self.timelines.values() if waiting else ():
            timeline.clock.synchronize(timeline.device)
            timeline.correct_drift()
        self.pending.clear()
        self.pending.extend(part for part in waiting if not part.settle())

    def forget_devices(self) -> None:
        """Discard all marks unread."""
        for part in self.pending:
            part.forget()
        self.pending.clear()
        self.timelines.clear()
