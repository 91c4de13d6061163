"""Where on the host's time line did the device's work lie? Event pairs give lengths; anchors give places."""

from __future__ import annotations

import threading
from time import perf_counter_ns
from typing import Any

from hpfracc.profiling.clocks import DeviceClock

__all__ = ["Anchor", "Timeline"]

#: Nanoseconds after which a new anchor is set. CUDA gives the time between two events as a float32 of milliseconds:
#: within a second of its anchor a mark is placed to a tenth of a microsecond.
_ANCHOR_AGE = 1_000_000_000


class Anchor:
    """A mark that stays, to which others are measured; ``base`` is its own place, in seconds from the first."""

    __slots__ = ("base", "before", "mark", "set_at")

    def __init__(self, mark: Any, before: Anchor | None, set_at: int) -> None:
        self.mark = mark
        self.before = before
        self.set_at = set_at
        self.base: float | None = None if before is not None else 0.0


class Timeline:
    """The marks of one device on the host's clock (``perf_counter_ns``).

    The first anchor is set on an idle device, so that host and device pass it together to within some microseconds;
    making a time line waits for the device, once.
    """

    def __init__(self, clock: DeviceClock, device: str) -> None:
        self.clock = clock
        self.device = device
        self._lock = threading.Lock()
        self._rate = 1.0
        clock.synchronize(device)
        mark = clock.mark(device)
        self._zero = perf_counter_ns()
        self._latest = Anchor(mark, None, self._zero)

    def anchor(self, mark: Any) -> tuple[Anchor, bool]:
        """The anchor that ``mark`` is to be measured from; True if the mark itself has become one and must be kept."""
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
        """When the device passed ``mark``, on the host's clock; None while it is not known."""
        base = self._base(anchor)
        if base is None or not self.clock.has_passed(mark):
            return None
        seconds = base if mark is anchor.mark else base + self.clock.seconds(anchor.mark, mark)
        return self._zero + round(seconds * self._rate * 1e9)

    def _base(self, anchor: Anchor) -> float | None:
        """The anchor's own place. A chain of anchors is walked by hand: it may be as long as the run has seconds."""
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
            # The wait itself takes some microseconds: only over seconds is the quotient one of clocks.
            if device > 2.0:
                self._rate = (now - self._zero) / 1e9 / device
            self.clock.release(self.device, mark)
