"""What a device did for a span: a pair of marks in its own queue, read when it has passed them."""

from __future__ import annotations

from typing import Any

from hpfracc.profiling.clocks import DeviceClock
from hpfracc.profiling.timelines import Anchor, Timeline

__all__ = ["DeviceTime"]


class DeviceTime:
    """The device's part of a span.

    ``timing`` says what the figures are worth:

    - ``"device"``: the device was still at work when the span ended, so that the time between the marks is its own;
    - ``"at most"``: it had nothing left to do by then, so that the time between the marks may contain waiting;
      it is kept in ``at_most`` and no device time is claimed;
    - ``"enqueued"``: the library has no marks, and the work was only asked for;
    - ``"synchronised"``: the span waited for its work, so that the host's own duration is the truth;
    - ``"no clock"``: nobody can time the device that was named;
    - ``"pending"``: the device has not got there yet.
    """

    __slots__ = (
        "_anchor",
        "_begin",
        "_clock",
        "_end",
        "_idle_at_end",
        "_keep_begin",
        "_timeline",
        "at_most",
        "device",
        "duration",
        "start",
        "timing",
    )

    def __init__(self, device: str, clock: DeviceClock | None, timeline: Timeline | None) -> None:
        self.device = device
        self.timing = "no clock" if clock is None else "pending"
        self.start: int | None = None
        self.duration: int | None = None
        self.at_most: int | None = None
        self._clock = clock
        self._timeline = timeline
        self._begin: Any = None
        self._end: Any = None
        self._anchor: Anchor | None = None
        self._keep_begin = False
        self._idle_at_end = False

    def __getstate__(self) -> tuple[Any, ...]:
        """The figures; marks and clocks belong to this process."""
        return self.device, self.timing, self.start, self.duration, self.at_most

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(state[0], None, None)  # type: ignore[misc]
        _, self.timing, self.start, self.duration, self.at_most = state

    def begin(self) -> None:
        """Set the first mark."""
        clock = self._clock
        if clock is not None:
            self._begin = mark = clock.mark(self.device)
            if mark is not None and self._timeline is not None:
                self._anchor, self._keep_begin = self._timeline.anchor(mark)

    def end(self) -> None:
        """Set the second mark, unless that was done already; never waits."""
        clock = self._clock
        if clock is None or self._end is not None or self.timing == "synchronised":
            return
        if self._begin is None:
            self.timing = "enqueued"
            return
        self._idle_at_end, self._end = clock.mark_end(self.device)

    def wait(self, value: Any) -> None:
        """Set the second mark and wait for ``value``, or for the device where it is None."""
        clock = self._clock
        if clock is None:
            return
        self.end()
        if value is None or not clock.wait(value):
            clock.synchronize(self.device)
        if self._end is None:
            self.timing = "synchronised"

    def memory(self) -> tuple[int, int | None] | None:
        """What the device's allocator tells."""
        return None if self._clock is None else self._clock.memory(self.device)

    @property
    def waits_for_marks(self) -> bool:
        """Whether there are marks still to be read."""
        return self._end is not None

    def settle(self) -> bool:
        """Read the marks if the device has passed them; whether nothing is left to wait for."""
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
        """Give up the marks unread: a forked child cannot read its parent's."""
        self._begin = self._end = self._anchor = self._clock = None
        if self.timing == "pending":
            self.timing = "no clock"
