"""How much memory the process has: what tracemalloc counts while it traces, else what is resident."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable

__all__ = ["read_host_memory"]

Reading = tuple[str, int, int | None]


def read_host_memory() -> Reading:
    """Which counter was read, bytes now, and the most there ever were (None where that is not told)."""
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
