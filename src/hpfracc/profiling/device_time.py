"""Device times: pairs of marks in a device's queue, read later and mapped to the host's clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from hpfracc.profiling.clocks import DeviceClock

#: Nanoseconds after which a new anchor is set. CUDA returns the time between two events as float32 milliseconds, so a
#: mark within a second of its anchor is accurate to a tenth of a microsecond.
_ANCHOR_AGE = 1_000_000_000


@dataclass(slots=True, eq=False)
class Anchor:
    """A permanent mark, relative to which others are measured; ``base`` is its time in seconds after the first."""

    mark: Any
    before: Anchor | None
    set_at: int
    base: float | None = None


class Timeline:
    """The marks of one device on the host's clock (``perf_counter_ns``).

    The first anchor is set on an idle device, so that host and device pass it at the same time to within microseconds.
    Creating a timeline waits for the device once.
    """

    def __init__(self, clock: DeviceClock, device: str) -> None:
        self.clock = clock
        self.device = device
        self._lock = threading.Lock()
        self._rate = 1.0
        clock.synchronize(device)
        mark = clock.mark(device)
        self._zero = perf_counter_ns()
        self._latest = Anchor(mark, None, self._zero, base=0.0)

    def anchor(self, mark: Any) -> tuple[Anchor, bool]:
        """The anchor for ``mark``; True if the mark itself becomes an anchor and must be kept."""
        latest = self._latest
        now = perf_counter_ns()
        if now - latest.set_at < _ANCHOR_AGE:
            return latest, False
        with self._lock:
            if self._latest is not latest:
                return self._latest, False
            self._latest = fresh = Anchor(mark, latest, now)
        return fresh, True

    def place(self, anchor: Anchor, mark: Any) -> int | None:
        """When the device passed ``mark``, on the host's clock; None if not known yet."""
        base = self._base(anchor)
        if base is None or not self.clock.has_passed(mark):
            return None
        seconds = base if mark is anchor.mark else base + self.clock.seconds(anchor.mark, mark)
        return self._zero + round(seconds * self._rate * 1e9)

    def _base(self, anchor: Anchor) -> float | None:
        """The time of the anchor. Iterative, because a chain of anchors grows by one per second."""
        chain = []
        while anchor.base is None:
            chain.append(anchor)
            assert anchor.before is not None
            anchor = anchor.before
        base = anchor.base
        for link in reversed(chain):
            assert link.before is not None
            if not (self.clock.has_passed(link.before.mark) and self.clock.has_passed(link.mark)):
                return None
            base += self.clock.seconds(link.before.mark, link.mark)
            link.base, link.before = base, None
        return base

    def correct_drift(self) -> None:
        """Compare the two clocks again, on an idle device: over minutes they drift apart by milliseconds."""
        mark = self.clock.mark(self.device)
        self.clock.synchronize(self.device)
        now = perf_counter_ns()
        latest = self._latest
        base = self._base(latest)
        if base is not None and mark is not None:
            device = base + self.clock.seconds(latest.mark, mark)
            # The wait takes microseconds, so the ratio of the clocks is accurate only over seconds.
            if device > 2.0:
                self._rate = (now - self._zero) / 1e9 / device
            self.clock.release(self.device, mark)


@dataclass(slots=True, eq=False)
class DeviceTime:
    """The device's part of a span.

    ``timing`` says how the time was obtained:

    - ``"device"``: the device was still working when the span ended, so the time between the marks is its own;
    - ``"at most"``: the device was idle by then, so the time between the marks may include waiting; it is kept in
      ``at_most``, and ``duration`` is None;
    - ``"enqueued"``: the library has no marks, and the work was only enqueued;
    - ``"synchronised"``: the span waited for its work, so the host's duration is exact;
    - ``"no clock"``: no library can time this device;
    - ``"pending"``: the device has not passed the marks yet.
    """

    device: str
    _clock: DeviceClock | None
    _timeline: Timeline | None
    timing: str = "pending"
    start: int | None = None
    duration: int | None = None
    at_most: int | None = None
    _begin: Any = None
    _end: Any = None
    _anchor: Anchor | None = None
    _keep_begin: bool = False
    _idle_at_end: bool = False

    def __getstate__(self) -> tuple[Any, ...]:
        """Pickle the numbers only; marks and clocks belong to this process."""
        return self.device, self.timing, self.start, self.duration, self.at_most

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(state[0], None, None, *state[1:])  # type: ignore[misc]

    def begin(self) -> None:
        """Set the first mark."""
        clock = self._clock
        if clock is not None:
            self._begin = mark = clock.mark(self.device)
            if mark is not None and self._timeline is not None:
                self._anchor, self._keep_begin = self._timeline.anchor(mark)

    def end(self) -> None:
        """Set the second mark, unless it is set; never waits."""
        clock = self._clock
        if clock is None or self._end is not None or self.timing == "synchronised":
            return
        if self._begin is None:
            self.timing = "enqueued"
            return
        self._idle_at_end, self._end = clock.mark_end(self.device)

    def wait(self, value: Any) -> None:
        """Set the second mark and wait for ``value``, or for the device if it is None."""
        clock = self._clock
        if clock is None:
            return
        self.end()
        if value is None or not clock.wait(value):
            clock.synchronize(self.device)
        if self._end is None:
            self.timing = "synchronised"

    def memory(self) -> tuple[int, int | None] | None:
        """Allocated bytes on the device, and their high-water mark."""
        return None if self._clock is None else self._clock.memory(self.device)

    @property
    def waits_for_marks(self) -> bool:
        """Whether there are marks to be read."""
        return self._end is not None

    def settle(self) -> bool:
        """Read the marks if the device has passed them; returns whether nothing is pending."""
        clock, end, timeline = self._clock, self._end, self._timeline
        if clock is None or end is None or timeline is None or self._anchor is None:
            return True
        if not clock.has_passed(end):
            return False
        start = timeline.place(self._anchor, self._begin)
        if start is None:  # its anchor lies in another queue that lags behind
            return False
        elapsed = round(clock.seconds(self._begin, end) * 1e9)
        self.start = start
        if self._idle_at_end:
            self.timing, self.at_most = "at most", elapsed
        else:
            self.timing, self.duration = "device", elapsed
        if not self._keep_begin:
            clock.release(self.device, self._begin)
        clock.release(self.device, end)
        self._begin = self._end = self._anchor = None
        return True

    def forget(self) -> None:
        """Discard the marks unread, because a forked child cannot read those of its parent."""
        self._begin = self._end = self._anchor = self._clock = None
        if self.timing == "pending":
            self.timing = "no clock"
