"""The host memory that this process may use, and how much of it is free.

Several limits apply at once (the machine's RAM, the control group of the process and all its ancestors, the process's
own ``ulimit``), each with its own usage. The memory that can be allocated is the smallest remainder.

While a monitor is active, the growth of memory in named parts of a program is recorded too: the bytes in use when each
span begins and ends.

A leak is found by a robust slope over a window of readings. They go up and down with every temporary, so only the
lowest reading of each interval counts: memory that is never released. Their slope is the median of the slopes between
all pairs (Theil and Sen), which is robust to outliers [1]_. It is a leak if that slope is as steep at the end of the
window as at its start; while a cache fills or a program warms up, it flattens.

References
----------
.. [1] P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", J. Amer. Statist. Assoc. 63 (1968)
   1379-1389.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hpfracc._interrupts import Guarded
from hpfracc._optional import find_psutil, machine_memory
from hpfracc.engine.cgroups import Group, find_groups, own_groups_text, read_text

#: Version 1 of control groups writes "no limit" as the largest whole number of pages that fits 63 bits.
_UNLIMITED = 1 << 60
#: Beside the name of a limit of which all counts as free.
_UNKNOWN = "(how much is in use is not known without psutil)"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One limit on this process's memory: its name, its size and its usage, in bytes."""

    name: str
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes remaining, at least 0."""
        return max(0, self.limit - self.used)

    def to_dict(self) -> dict[str, Any]:
        """The limit as plain data."""
        return {"name": self.name, "limit": self.limit, "used": self.used, "free": self.free}


@dataclass(frozen=True, slots=True)
class HostMemory:
    """One reading of the host's memory; the bounds include at least the machine's RAM."""

    bounds: tuple[MemoryLimit, ...]

    @property
    def limit(self) -> int:
        """The smallest limit, in bytes."""
        return min(bound.limit for bound in self.bounds)

    @property
    def free(self) -> int:
        """Bytes that can still be allocated: the smallest remainder of all limits."""
        return min(bound.free for bound in self.bounds)

    @property
    def usage(self) -> float:
        """The used fraction of the fullest limit, from 0 to 1."""
        return max(min(1.0, bound.used / bound.limit) if bound.limit else 1.0 for bound in self.bounds)

    @property
    def tightest(self) -> MemoryLimit:
        """The limit that would be reached first."""
        return min(self.bounds, key=lambda bound: bound.free)

    def to_dict(self) -> dict[str, Any]:
        """The reading as plain data."""
        return {
            "limit": self.limit,
            "free": self.free,
            "tightest": self.tightest.name,
            "bounds": [bound.to_dict() for bound in self.bounds],
        }


class HostProbe:
    """Reads the host's limits; caches the process's control groups as long as they do not change.

    Parameters
    ----------
    root : Path
        Folder that contains ``/proc`` and ``/sys``; tests use their own.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups: tuple[str, tuple[Group, ...]] | None = None

    def read(self) -> HostMemory:
        """A fresh reading."""
        bounds = [_ram(self._root)]
        bounds += [bound for group in self._memory_groups() if (bound := _group_bound(group)) is not None]
        bounds += _process_bounds(self._root)
        return HostMemory(tuple(bounds))

    def _memory_groups(self) -> tuple[Group, ...]:
        text = own_groups_text(self._root)
        if self._groups is None or self._groups[0] != text:
            self._groups = (text, find_groups("memory", self._root))
        return self._groups[1]


def _ram(root: Path) -> MemoryLimit:
    text = read_text(root / "proc/meminfo")
    total, available = _field(text, "MemTotal:", 1024), _field(text, "MemAvailable:", 1024)
    if total is None or available is None:  # not Linux
        psutil = find_psutil()
        if psutil is None:
            return MemoryLimit(f"RAM {_UNKNOWN}", machine_memory(), 0)
        memory = psutil.virtual_memory()
        total, available = int(memory.total), int(memory.available)
    return MemoryLimit("RAM", total, total - available)


def _group_bound(group: Group) -> MemoryLimit | None:
    """The limit of one control group, or None if it sets none."""
    if group.version == 2:
        # Above memory.high nothing fails, but the kernel slows every allocation down to a halt.
        limits = [_number(group.read("memory.max")), _number(group.read("memory.high"))]
        use, idle_cache = "memory.current", "inactive_file"
    else:
        # The second is the limit of the tightest ancestor, including those outside this mount.
        tightest = _field(group.read("memory.stat"), "hierarchical_memory_limit")
        limits = [_number(group.read("memory.limit_in_bytes")), tightest]
        use, idle_cache = "memory.usage_in_bytes", "total_inactive_file"
    known = [limit for limit in limits if limit is not None and limit < _UNLIMITED]
    if not known:
        return None
    # Inactive file pages count as used, but are reclaimed when memory is needed.
    used = (_number(group.read(use)) or 0) - (_field(group.read("memory.stat"), idle_cache) or 0)
    return MemoryLimit(f"cgroup {group.folder}", min(known), max(0, used))


def _own_limits() -> dict[str, int]:
    """The process's own ``ulimit``, where one is set: of its address space, and of its private writable memory."""
    try:
        import resource
    except ImportError:  # Windows and Pyodide have no such limits
        return {}
    kinds = {"RLIMIT_AS": resource.RLIMIT_AS, "RLIMIT_DATA": resource.RLIMIT_DATA}
    found = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return {name: limit for name, limit in found.items() if 0 <= limit < _UNLIMITED}  # RLIM_INFINITY may be -1


def _process_bounds(root: Path) -> list[MemoryLimit]:
    limits = _own_limits()
    if not limits:
        return []
    text = read_text(root / "proc/self/status")
    used = {"RLIMIT_AS": _field(text, "VmSize:", 1024), "RLIMIT_DATA": _field(text, "VmData:", 1024)}
    if None in used.values():  # not Linux
        psutil = find_psutil()
        if psutil is None:
            return [MemoryLimit(f"{name} {_UNKNOWN}", limit, 0) for name, limit in limits.items()]
        used = dict.fromkeys(used, int(psutil.Process().memory_info().vms))
    return [MemoryLimit(name, limit, used[name] or 0) for name, limit in limits.items()]


def resident_bytes() -> tuple[int, int] | None:
    """Resident bytes of this process, and their high-water mark; None if the system does not report them."""
    text = read_text(Path("/proc/self/status"))
    now, most = _field(text, "VmRSS:", 1024), _field(text, "VmHWM:", 1024)
    return None if now is None or most is None else (now, most)


def _number(text: str | None) -> int | None:
    """The single number in a file; None for ``max``, a missing file and anything else."""
    return int(text) if text is not None and text.isdigit() else None


def _field(text: str | None, name: str, unit: int = 1) -> int | None:
    """The number after ``name`` at the start of a line, or None."""
    match = re.search(rf"^{name}\s+(\d+)", text or "", re.MULTILINE)
    return None if match is None else int(match[1]) * unit


# Growth in named parts of a program.

#: Number of span ends that are kept.
_MAX = 8192


class SpanLedger(Guarded):
    """The growth of each span: bytes in use at its end minus those at its start, without nested spans."""

    def __init__(self) -> None:
        super().__init__()
        #: Whether a watcher is active; read without the lock before each span.
        self.active = False
        self._watchers = 0
        self._ended: deque[tuple[float, str, int]] = deque(maxlen=_MAX)

    def watch(self, on: bool) -> None:
        """Start or stop recording spans; several watchers may be active."""
        with self._lock:
            self._watchers = max(0, self._watchers + (1 if on else -1))
            self.active = self._watchers > 0

    def add(self, name: str, grown: int) -> None:
        """Record the end of a span."""
        self._ended.append((time.monotonic(), name, grown))

    def growers(self, seconds: float) -> dict[str, float]:
        """Bytes per second that each span added over the last ``seconds``, fastest first."""
        begin = time.monotonic() - seconds
        total: dict[str, int] = {}
        for ended, name, grown in list(self._ended):
            if ended >= begin:
                total[name] = total.get(name, 0) + grown
        rates = {name: grown / seconds for name, grown in total.items() if grown > 0}
        return dict(sorted(rates.items(), key=lambda pair: -pair[1]))

    def clear(self) -> None:
        """Reset everything, including watchers."""
        with self._lock:
            self._ended.clear()
            self._watchers, self.active = 0, False


#: The spans of this process.
memory_spans = SpanLedger()


class span:
    """A named part of a program. While a monitor is sampling, the memory that it leaves behind is recorded.

    Examples
    --------
    >>> from hpfracc import memory
    >>> with memory.span("load"):
    ...     data = bytearray(1000)
    """

    __slots__ = ("_began", "_inside", "_outer", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._began: int | None = None

    def __enter__(self) -> span:
        if memory_spans.active:
            self._began, self._inside, self._outer = _in_use(), 0, _open.get()
            _open.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._began is None:
            return
        _open.set(self._outer)
        grown, self._began = _in_use() - self._began, None
        if self._outer is not None:
            self._outer._inside += grown
        memory_spans.add(self.name, grown - self._inside)


#: The innermost open span of this thread or task.
_open: ContextVar[span | None] = ContextVar("hpfracc_memory_span", default=None)


def _in_use() -> int:
    now = resident_bytes()
    return 0 if now is None else now[0]


#: Maximum and minimum seconds of readings.
WINDOW, SHORTEST = 300.0, 60.0
#: Number of intervals, of which the lowest reading counts, and minimum number of readings.
_BINS, _FEWEST = 12, 24
#: Bytes per second below which growth is ignored: 230 MB per hour.
SLOWEST = 64 * 1024
#: Minimum final slope relative to the initial one, and minimum growth relative to the scatter.
_STEADY, _CLEAR = 0.6, 4.0

Verdict = Literal["steady", "growing", "levelling off", "unknown"]


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of memory over a window of readings.

    Attributes
    ----------
    verdict : {"steady", "growing", "levelling off", "unknown"}
        ``growing`` is what a leak looks like; ``unknown`` while there are too few readings.
    bytes_per_second : float
        The robust slope; nan while unknown.
    seconds : float
        Length of the window.
    growers : Mapping[str, float]
        Spans and operations during which memory grew in that time, in bytes per second, the fastest first.
    """

    verdict: Verdict
    bytes_per_second: float
    seconds: float
    growers: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_leak(self) -> bool:
        """Whether memory grows without a sign of stopping."""
        return self.verdict == "growing"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def robust_slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope between all pairs of points; nan for fewer than two."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0]]
    from statistics import median  # takes 10 ms to import, and only reports need it

    return median(slopes) if slopes else float("nan")


def find_growth(readings: Sequence[tuple[float, float]], slowest: float = SLOWEST) -> Growth:
    """Judge ``(seconds, bytes)`` readings, oldest first.

    First the whole window, then its last half and quarter, so that growth after a warm-up is found before the warm-up
    has left the window.
    """
    found = Growth("unknown", float("nan"), 0.0)
    for share in (1.0, 0.5, 0.25):
        begin = readings[-1][0] - share * (readings[-1][0] - readings[0][0]) if readings else 0.0
        recent = [reading for reading in readings if reading[0] >= begin]
        if len(recent) < _FEWEST or recent[-1][0] - recent[0][0] < SHORTEST:
            break
        found = _judge(recent, slowest)
        if found.verdict == "growing" or (found.verdict == "steady" and share < 1.0):
            break
    return found


def _judge(readings: Sequence[tuple[float, float]], slowest: float) -> Growth:
    floor = _floors(readings)
    seconds = readings[-1][0] - readings[0][0]
    slope = robust_slope(floor)
    from statistics import median

    middle = median(point[0] for point in floor)
    level = median(point[1] for point in floor)
    scatter = median(abs(y - level - slope * (x - middle)) for x, y in floor)
    if slope < slowest or slope * seconds < _CLEAR * scatter:
        return Growth("steady", slope, seconds)
    third = len(floor) // 3
    early, late = robust_slope(floor[: third + 1]), robust_slope(floor[-third - 1 :])
    if late < slowest or late < _STEADY * early:
        return Growth("levelling off", slope, seconds)
    return Growth("growing", slope, seconds)


def _floors(readings: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lowest reading of each of equal intervals of time."""
    begin, length = readings[0][0], (readings[-1][0] - readings[0][0]) / _BINS
    lowest: dict[int, tuple[float, float]] = {}
    for moment, size in readings:
        place = min(_BINS - 1, int((moment - begin) / length))
        if place not in lowest or size < lowest[place][1]:
            lowest[place] = (moment, size)
    return [lowest[place] for place in sorted(lowest)]
