"""Where spans go: a bounded ring, without a lock on the way in.

``shared`` is the recorder of the process. Its attribute ``on`` is all that the engine looks at while profiling is off.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Literal

from hpfracc.errors import InvalidInputError
from hpfracc.profiling.clocks import HOST_NAMES, DeviceClock, find_clock
from hpfracc.profiling.device_time import DeviceTime
from hpfracc.profiling.spans import NULL_SPAN, NullSpan, Span
from hpfracc.profiling.timelines import Timeline

__all__ = ["CAPACITY", "Memory", "Recorder", "Session", "shared"]

#: Spans kept by default; at some 300 bytes each, 60 MB.
CAPACITY = 200_000

#: Pairs of marks that wait to be read before old ones are looked at: the device is usually done with those.
_PENDING, _AT_ONCE = 256, 32

#: What is read around spans: nothing, the allocator of a span's device, or the host's memory for the others as well.
Memory = Literal["", "device", "all"]


class Session:
    """What was recorded since the last reset.

    Spans are appended to a deque and counted by ``itertools.count``, each one C call that no other thread can split.
    """

    def __init__(self, capacity: int) -> None:
        self.spans: deque[Span] = deque(maxlen=capacity)
        self.keep = self.spans.append
        self._ids, self._ends = itertools.count(1), itertools.count(1)
        self.issue: Callable[[], int] = self._ids.__next__
        self.count_end: Callable[[], int] = self._ends.__next__
        self._looks = 0
        self._lock = threading.Lock()
        self.local = threading.local()
        #: Name of each lane, and for a task the lane of the thread it ran in.
        self.lanes: list[tuple[str, int | None]] = []
        self._tasks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._devices: dict[str, tuple[DeviceClock, str, Timeline | None]] = {}
        self.timelines: dict[tuple[str, str], Timeline] = {}
        self.pending: deque[DeviceTime] = deque()
        self.begun_ns = time.perf_counter_ns()
        self.begun_unix = time.time()

    def new_lane(self, name: str) -> int:
        """A lane for the current thread."""
        with self._lock:
            self.lanes.append((name, None))
            self.local.lane = lane = len(self.lanes) - 1
        return lane

    def task_lane(self, thread: int, loop: Any) -> int:
        """The lane of the task that runs in ``loop`` now; that of the thread outside of tasks."""
        import asyncio

        task = asyncio.current_task(loop)
        if task is None:
            return thread
        lane = self._tasks.get(task)
        if lane is None:
            with self._lock:
                self.lanes.append((task.get_name(), thread))
                self._tasks[task] = lane = len(self.lanes) - 1
        return lane

    def counts(self) -> tuple[int, int]:
        """How many spans were begun, and how many ended; asking takes a number, which is taken off again."""
        with self._lock:
            self._looks += 1
            return self.issue() - self._looks, self.count_end() - self._looks

    def snapshot(self) -> tuple[list[Span], int, int]:
        """The spans that are kept, how many were dropped, and how many are open."""
        begun, ended = self.counts()
        while True:
            try:
                kept = list(self.spans)
                break
            except RuntimeError:  # the garbage collector ran code that ended a span meanwhile
                continue
        return kept, max(0, ended - len(kept)), max(0, begun - ended)

    def device_time(self, device: str) -> DeviceTime:
        """The part of a span that ``device`` does; its time line is made at its first use."""
        known = self._devices.get(device)
        if known is None:
            found = find_clock(device)
            if found is None:  # asked again next time: its library may be imported by then
                return DeviceTime(device, None, None)
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
        """Read every mark; waits for the devices that have something left to do."""
        waiting = list(self.pending)
        for timeline in self.timelines.values() if waiting else ():
            timeline.clock.synchronize(timeline.device)
            timeline.correct_drift()
        self.pending.clear()
        self.pending.extend(part for part in waiting if not part.settle())

    def forget_devices(self) -> None:
        """Leave all marks unread."""
        for part in self.pending:
            part.forget()
        self.pending.clear()
        self.timelines.clear()


class Recorder:
    """Makes spans and keeps them.

    Parameters
    ----------
    capacity : int
        Spans that are kept; beyond it the oldest are dropped, and counted.
    memory : {"", "device", "all"}
        What is read around spans.
    """

    def __init__(self, capacity: int = CAPACITY, memory: Memory = "") -> None:
        self.on = False
        self.memory: Memory = memory
        self.capacity = check_capacity(capacity)
        self.current: ContextVar[Span | None] = ContextVar("hpfracc_span", default=None)
        self.session = Session(self.capacity)
        #: asyncio's own look-up, once profiling was on: importing asyncio takes longer than importing hpfracc.
        self.running_loop: Callable[[], Any] | None = None
        _recorders.add(self)

    def enable(self) -> None:
        """Record from now on."""
        if self.running_loop is None:
            from asyncio.events import _get_running_loop

            self.running_loop = _get_running_loop
        self.on = True

    def disable(self) -> None:
        """Record no further spans; those that are open are still kept when they end."""
        self.on = False

    def reset(self, capacity: int | None = None) -> None:
        """Forget everything recorded; spans that are open now will not be kept."""
        if capacity is not None:
            self.capacity = check_capacity(capacity)
        self.session = Session(self.capacity)

    def span(
        self, name: str, kind: str = "span", device: str | None = None, metadata: dict[str, Any] | None = None
    ) -> Span | NullSpan:
        """A span to be entered; the null object while recording is off."""
        return Span(self, name, kind, device, metadata) if self.on else NULL_SPAN

    def event(self, name: str, kind: str, metadata: dict[str, Any] | None = None, error: str | None = None) -> None:
        """Record something that happens at a moment."""
        if self.on:
            with Span(self, name, kind, None, metadata) as span:
                span.error = error

    def device_time(self, device: str) -> DeviceTime | None:
        """The device's part of a span on ``device``; None for the host."""
        return None if device in HOST_NAMES else self.session.device_time(device)


def check_capacity(capacity: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise InvalidInputError(f"capacity={capacity!r} is not a number of spans; use a whole number of at least 1")
    return capacity


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _after_fork() -> None:
    """A child begins with nothing recorded: what its parent did is in the parent's own export."""
    for recorder in list(_recorders):
        recorder.session.forget_devices()
        recorder.reset()
        recorder.current.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

#: The recorder of the process, to which the engine reports.
shared = Recorder()


def reset() -> None:
    """The shared recorder as it was at the start: off, empty, with the default capacity."""
    shared.disable()
    shared.memory = ""
    shared.reset(CAPACITY)
    shared.current.set(None)
