"""What a backend hands to the profiler: the clock of its devices, and what their allocator tells.

Profiling stands below the backends and knows none of them. Whoever stands above plugs in a source of clocks; it is
asked when a span names a device, so that nothing is imported for spans that do not.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any, Protocol

__all__ = ["HOST_NAMES", "DeviceClock", "all_clocks", "find_clock", "plug_in", "read_host_memory"]

#: Names under which a span says that it concerns no device.
HOST_NAMES = frozenset({"cpu", "host"})


class DeviceClock(Protocol):
    """One library's way to time what its devices do. Only ``synchronize`` and ``wait`` ever wait.

    A mark is a place in the device's own queue of work. A library without such marks gives None for them: its spans
    then say that work was enqueued, not how long it took.
    """

    #: The library.
    name: str
    #: Whether it can set marks at all.
    marks: bool

    def in_use(self) -> bool:
        """Whether the library has begun to use its devices: one that has is asked before one that would begin now."""

    def resolve(self, device: str) -> str | None:
        """The full name of a device that can be timed now (of ``"gpu"``, ``"cuda:0"``); None if it is not ours."""

    def mark(self, device: str) -> Any | None:
        """Set a mark behind all work that is in the current queue of ``device``."""

    def mark_end(self, device: str) -> tuple[bool, Any | None]:
        """Whether everything in the current queue of ``device`` is done already, and a mark behind it."""

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached ``mark``."""

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two marks that have both been passed."""

    def release(self, device: str, mark: Any) -> None:
        """Take a mark back, to be used again."""

    def synchronize(self, device: str) -> None:
        """Wait for all work of ``device``."""

    def wait(self, value: Any) -> bool:
        """Wait until ``value`` is computed; False if it is not an array of this library."""

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Bytes that the allocator has handed out, and the most it ever had; None where it does not tell."""


Source = Callable[[], Iterable[DeviceClock]]

_sources: list[Source] = []


def plug_in(source: Source) -> Callable[[], None]:
    """Add a source of clocks, asked again whenever a span names a device; returns what takes it out again.

    A source tells of libraries that are imported already, and imports none.
    """
    _sources.append(source)

    def take_out() -> None:
        if source in _sources:
            _sources.remove(source)

    return take_out


def all_clocks() -> list[DeviceClock]:
    """The clocks of every library that is in use."""
    return [clock for source in _sources for clock in source()]


def find_clock(device: str) -> tuple[DeviceClock, str] | None:
    """The first clock that knows ``device``, with the device's full name; None if there is none.

    ``device`` may begin with a library, as in ``"cupy:cuda:0"``: then that library's queue is meant.
    """
    clocks = sorted(all_clocks(), key=lambda clock: not clock.in_use())
    library, _, rest = device.partition(":")
    own = [clock for clock in clocks if clock.name == library]
    for clock in own or clocks:
        full = clock.resolve((rest or "gpu") if own else device)
        if full is not None:
            return clock, full
    return None


#: Which counter was read, bytes now, and the most there ever were (None where that is not known).
Reading = tuple[str, int, int | None]


def read_host_memory() -> Reading:
    """The memory of this process: what tracemalloc counts while it traces, else what is resident."""
    if tracemalloc.is_tracing():
        now, peak = tracemalloc.get_traced_memory()
        return "tracemalloc", now, peak
    now, peak_resident = _resident()
    return "resident", now, peak_resident


def _from_psutil() -> tuple[int, int | None]:
    import psutil

    return int(psutil.Process().memory_info().rss), None


def _reader() -> Callable[[], tuple[int, int | None]]:
    if not sys.platform.startswith("linux"):
        return _from_psutil
    import resource

    page, usage, who = os.sysconf("SC_PAGE_SIZE"), resource.getrusage, resource.RUSAGE_SELF

    opened: list[int] = []

    def close_parents() -> None:
        # In a forked child it would go on telling of the parent.
        while opened:
            os.close(opened.pop())

    os.register_at_fork(after_in_child=close_parents)

    def read() -> tuple[int, int | None]:
        if not opened:
            opened.append(os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC))
        now = int(os.pread(opened[0], 64, 0).split(b" ", 2)[1]) * page
        # The kernel keeps the peak from counters that lag a little behind.
        return now, max(now, usage(who).ru_maxrss * 1024)

    return read


_resident = _reader()
