"""The memory monitor: snapshots, levels of pressure, callbacks, statistics, leaks, automatic clean-up."""

from __future__ import annotations

import enum
import logging
import os
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, NoReturn

from hpfracc import _reading
from hpfracc._interrupts import Guarded, ShieldedCall
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.execution.pressure.ladder import CleanupReport, ladder
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.memory.host import (
    SLOWEST,
    WINDOW,
    Growth,
    HostProbe,
    find_growth,
    memory_spans,
    resident_bytes,
)
from hpfracc.errors import InvalidInputError

logger = logging.getLogger("hpfracc.memory")

#: Maximum number of snapshots: an hour at one per second.
_KEPT = 3600
#: Name of the thread that takes snapshots.
_SAMPLER = "hpfracc-memory"
#: Seconds between two automatic clean-ups.
_CLEAN_EVERY = 5.0


#: Fractions of memory in use at which moderate, high and critical start, and how much lower each is left.
MARKS, BELOW = (0.60, 0.75, 0.90), 0.05

_probe = HostProbe()


class Reading(NamedTuple):
    """Total bytes, used by all processes, free for this one and held by it; and the fraction in use."""

    total: int
    used: int
    free: int
    allocated: int
    usage: float


def watched_device(device_id: int | str) -> str:
    """The device of that number or name; the host if there is no such GPU."""
    name = device_id if isinstance(device_id, str) else f"cuda:{_reading.whole('device_id', device_id, least=0)}"
    return name if name != HOST and hardware.machine().gpu(name) is not None else HOST


def read_memory(device: str) -> Reading:
    """Read a device's memory now."""
    if device == HOST:
        host, resident = _probe.read(), resident_bytes() or (0, 0)
        return Reading(host.limit, host.limit - min(host.limit, host.free), host.free, resident[0], host.usage)
    driver, gpu = hardware.driver_memory(device), hardware.machine().gpu(device)
    total = driver.total if driver is not None else (gpu.memory if gpu is not None else None) or 0
    free = get_budget().read(device) or 0
    held = sum(_held(name, device) for name in ("torch", "jax", "cupy") if registry.is_loaded(name))
    usage = 1.0 - free / total if total else 0.0
    return Reading(total, max(0, total - free), free, held, min(1.0, max(0.0, usage)))


def _held(name: str, device: str) -> int:
    """Bytes of the library's arrays on the device; of its whole pool if it does not count them."""
    adapter = registry.adapter(name)
    counts = adapter.memory(device)
    return adapter.reserved_bytes(device) if counts is None else counts[0]


class Pressure(enum.StrEnum):
    """How full memory is."""

    LOW = "low"
    MODERATE = "moderate"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for low to 3 for critical."""
        return list(Pressure).index(self)


class Levels:
    """The level of a series of readings.

    Parameters
    ----------
    marks : sequence of float
        Fractions in use at which moderate, high and critical start.
    below : float
        How much lower than its mark a level is left, so that small changes around a mark have no effect.
    """

    def __init__(self, marks: Sequence[float] = MARKS, below: float = BELOW) -> None:
        marks = tuple(_reading.numbers("thresholds", marks, ndim=1).tolist())
        if len(marks) != 3 or not 0.0 < marks[0] < marks[1] < marks[2] <= 1.0:
            raise InvalidInputError(f"thresholds={marks!r} are not three increasing fractions; use (0.6, 0.75, 0.9)")
        below = _reading.number("hysteresis", below, least=0, below=marks[0])
        self.marks = marks
        self.below = below
        self.level = Pressure.LOW

    def update(self, usage: float) -> Pressure:
        """The level after a reading of ``usage``, a fraction from 0 to 1."""
        entered = sum(usage >= mark for mark in self.marks)
        held = sum(usage >= mark - self.below for mark in self.marks)
        self.level = list(Pressure)[max(entered, min(self.level.rank, held))]
        return self.level


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """Memory at one point in time, in bytes.

    Attributes
    ----------
    timestamp : float
        Seconds since 1970.
    device : str
        ``"cpu"`` or a GPU.
    total, used, free : int
        The limit, the memory used by all processes, and what could be allocated now.
    allocated : int
        Memory of this process.
    usage : float
        ``used / total`` of the tightest limit, from 0 to 1.
    pressure : Pressure
        The level.
    """

    timestamp: float
    device: str
    total: int
    used: int
    free: int
    allocated: int
    usage: float
    pressure: Pressure

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Statistics of a monitor; sizes in MiB.

    Attributes
    ----------
    device : str
        The monitored device.
    snapshots : int
        Number of snapshots.
    current_allocated_mb, peak_allocated_mb, mean_allocated_mb : float
        Memory of this process: last, maximum and mean.
    free_mb, total_mb, usage : float
        Values of the last snapshot.
    pressure : Pressure
        The level now.
    cleanups, freed_mb : int, float
        Number of clean-ups, and memory freed by them.
    """

    device: str
    snapshots: int
    current_allocated_mb: float
    peak_allocated_mb: float
    mean_allocated_mb: float
    free_mb: float
    total_mb: float
    usage: float
    pressure: Pressure
    cleanups: int
    freed_mb: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class MemoryMonitor(Guarded):
    """Monitors the memory of a GPU, or of the host if there is none.

    Parameters
    ----------
    device_id : int or str
        The GPU's number, or a device such as ``"cuda:1"`` or ``"cpu"``. Without such a GPU the host is monitored.
    enable_auto_cleanup : bool
        Whether a snapshot above ``cleanup_threshold`` starts a clean-up.
    cleanup_threshold : float
        Fraction in use above which a clean-up starts.
    thresholds : sequence of float
        Fractions at which moderate, high and critical pressure start.
    hysteresis : float
        Difference between the fractions at which a level is entered and left.
    read : callable, optional
        Function that reads memory; for tests.
    """

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MemoryMonitor belongs to its process; call get_memory_monitor() in the other one")

    def __init__(
        self,
        device_id: int | str = 0,
        enable_auto_cleanup: bool = True,
        cleanup_threshold: float = 0.85,
        *,
        thresholds: Sequence[float] = MARKS,
        hysteresis: float = BELOW,
        read: Callable[[str], Reading] = read_memory,
    ) -> None:
        super().__init__()
        cleanup_threshold = _reading.number("cleanup_threshold", cleanup_threshold, above=0, most=1)
        self.device = watched_device(device_id)
        self.enable_auto_cleanup = enable_auto_cleanup
        self.cleanup_threshold = cleanup_threshold
        self._levels = Levels(thresholds, hysteresis)
        self._read = read
        self._history: deque[MemorySnapshot] = deque(maxlen=_KEPT)
        self._callbacks: list[Callable[[MemorySnapshot], Any]] = []
        self._own_cleanups: list[Callable[[], Any]] = []
        self._snapshots = self._cleanups = self._freed = self._peak = 0
        self._cleaned = -float("inf")
        #: The process and the thread that takes snapshots.
        self._sampler: tuple[int, ShieldedCall] | None = None
        self._end: SimpleQueue[None] = SimpleQueue()
        self._inside = threading.local()

    # Snapshots.

    def get_snapshot(self) -> MemorySnapshot:
        """Take a snapshot and store it. Callbacks are called if the level changed; a clean-up may follow."""
        reading = self._read(self.device)
        with self._lock:
            before = self._levels.level
            level = self._levels.update(reading.usage)
            snapshot = MemorySnapshot(time.time(), self.device, *reading, level)
            self._history.append(snapshot)
            self._snapshots += 1
            self._peak = max(self._peak, reading.allocated)
            callbacks = list(self._callbacks) if level is not before else []
        # Without the lock: a callback may take long, call this monitor, or wait for a thread that does.
        for callback in callbacks:
            self._tell(callback, snapshot)
        if self.enable_auto_cleanup and reading.usage >= self.cleanup_threshold:
            with self._lock:
                due = time.monotonic() - self._cleaned >= _CLEAN_EVERY
                self._cleaned = time.monotonic() if due else self._cleaned
            if due:
                goal = self.cleanup_threshold - self._levels.below
                self._count(ladder.climb(self.device, enough=lambda: self._read(self.device).usage < goal))
        return snapshot

    def _tell(self, callback: Callable[[MemorySnapshot], Any], snapshot: MemorySnapshot) -> None:
        if getattr(self._inside, "telling", False):
            return  # a callback is not called for its own snapshots
        self._inside.telling = True
        try:
            callback(snapshot)
        except Exception as error:
            name = getattr(callback, "__name__", repr(callback))
            logger.warning("memory callback %s failed: %s", name, registry.describe_failure(error))
        finally:
            self._inside.telling = False

    def get_pressure(self) -> Pressure:
        """The current level: low, moderate, high or critical."""
        return self.get_snapshot().pressure

    def get_snapshot_history(self) -> list[MemorySnapshot]:
        """The snapshots so far, oldest first; about the last hour at one per second."""
        with self._lock:
            return list(self._history)

    def can_allocate(self, size_mb: float, safety_margin: float = 0.1) -> bool:
        """Whether ``size_mb`` MiB could be allocated now, leaving the fraction ``safety_margin`` of the free memory.

        Parameters
        ----------
        size_mb : float
            MiB.
        safety_margin : float
            Fraction of the free memory that must remain, at least 0 and below 1.
        """
        size_mb = _reading.number("size_mb", size_mb, least=0)
        safety_margin = _reading.number("safety_margin", safety_margin, least=0, below=1)
        return get_budget().fits(size_mb * 2**20, self.device, 1.0 - safety_margin)

    def get_stats(self) -> MemoryStats:
        """Statistics of all snapshots, including a new one."""
        now = self.get_snapshot()
        with self._lock:
            mean = statistics.fmean(snapshot.allocated for snapshot in self._history)
            sizes = (now.allocated, self._peak, mean, now.free, now.total, self._freed)
            last, peak, mean, free, total, freed = (size / 2**20 for size in sizes)
            rest = now.usage, now.pressure, self._cleanups, freed
            return MemoryStats(self.device, self._snapshots, last, peak, mean, free, total, *rest)

    # Cleaning up.

    def cleanup_memory(self) -> CleanupReport:
        """Clean up, without affecting later calls; each rung of the ladder reports what it freed."""
        report = ladder.climb(self.device, highest="library caches")
        self._count(report)
        return report

    def _count(self, report: CleanupReport) -> None:
        if not report.skipped:
            with self._lock:
                self._cleanups += 1
                self._freed += report.freed

    def register_cleanup_callback(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` in every clean-up, for your own caches. It may return the bytes it released."""
        _reading.function("callback", callback, "()")
        with self._lock:
            self._own_cleanups.append(callback)
        ladder.register(callback)

    def register_pressure_callback(self, callback: Callable[[MemorySnapshot], Any]) -> None:
        """Call ``callback(snapshot)`` whenever the level changes."""
        _reading.function("callback", callback, "(snapshot)")
        with self._lock:
            self._callbacks.append(callback)

    # Sampling.

    def start_sampling(self, interval: float = 1.0) -> None:
        """Take a snapshot every ``interval`` seconds in a background thread, until :meth:`stop_sampling`."""
        interval = _reading.number("interval", interval, above=0)
        with self._lock:
            if self._sampler is None:
                memory_spans.watch(True)
                self._end = SimpleQueue()
                work = partial(_sample, weakref.ref(self), interval, self._end)
                self._sampler = os.getpid(), ShieldedCall(work, awaited=False, name=_SAMPLER)

    def stop_sampling(self) -> None:
        """Stop the background thread, if it is running."""
        with self._lock:
            alive, self._sampler, sampler = self.is_sampling, None, self._sampler
        if sampler is None:
            return
        memory_spans.watch(False)
        self._end.put(None)
        if alive and threading.current_thread().name != _SAMPLER:  # one of its callbacks may stop it
            sampler[1].wait(5.0)

    @property
    def is_sampling(self) -> bool:
        """Whether the background thread runs."""
        return self._sampler is not None and self._sampler[0] == os.getpid() and not self._sampler[1].ended

    def detect_growth(self, window: float = WINDOW, slowest: float = SLOWEST) -> Growth:
        """Whether the memory of this process grows steadily, and during which spans and operations.

        Parameters
        ----------
        window : float
            Seconds of snapshots to use.
        slowest : float
            Bytes per second below which growth is ignored.
        """
        history = self.get_snapshot_history()
        begin = history[-1].timestamp - window if history else 0.0
        found = find_growth(
            [(each.timestamp, float(each.allocated)) for each in history if each.timestamp >= begin], slowest
        )
        return found if found.verdict == "unknown" else replace(found, growers=memory_spans.growers(found.seconds))

    def close(self) -> None:
        """Stop sampling and remove callbacks."""
        self.stop_sampling()
        with self._lock:
            own, self._own_cleanups = self._own_cleanups, []
            self._callbacks = []
        for callback in own:
            ladder.unregister(callback)


def _sample(monitor: weakref.ref[MemoryMonitor], interval: float, end: SimpleQueue[None]) -> None:
    """Take snapshots, in a thread of their own, until told to end or the monitor is gone."""
    while True:
        with suppress(Empty):
            end.get(timeout=interval)
            return
        watching = monitor()
        if watching is None:
            return
        try:
            watching.get_snapshot()
        except Exception:
            logger.warning("a memory snapshot failed", exc_info=True)
        del watching


_monitors: dict[str, MemoryMonitor] = {}
_guard = Guarded()


def get_memory_monitor(
    device_id: int | str = 0, enable_auto_cleanup: bool = True, cleanup_threshold: float = 0.85
) -> MemoryMonitor:
    """The process's monitor of a GPU, or of the host if there is none, with the settings given last.

    Examples
    --------
    >>> from hpfracc import memory
    >>> monitor = memory.get_memory_monitor()
    >>> monitor.can_allocate(size_mb=1.0)
    True
    """
    device = watched_device(device_id)
    with _guard._lock:
        if device not in _monitors:
            _monitors[device] = MemoryMonitor(device)
        known = _monitors[device]
        known.cleanup_threshold = _reading.number("cleanup_threshold", cleanup_threshold, above=0, most=1)
        known.enable_auto_cleanup = enable_auto_cleanup
    return known


def reset() -> None:
    """Close and remove every monitor of this process."""
    with _guard._lock:
        known = list(_monitors.values())
        _monitors.clear()
    for monitor in known:
        monitor.close()
