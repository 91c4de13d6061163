"""Clocks, and counters of memory and energy: of devices, registered by backends, and of the host.

Profiling must not import the backends, nor read the hardware itself. The package registers the clocks of the backends,
which are asked for only when a span names a device, and energy counters, which return joules since an arbitrary origin.
Counters are updated slowly (NVIDIA's every 100 ms), so the energy of a short call is unknown: below a second it is not
reported.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import time
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from hpfracc._interrupts import after_fork, start_thread
from hpfracc._optional import find_psutil
from hpfracc._plugs import from_above


class DeviceClock(Protocol):
    """A library's clock for its devices. Only ``synchronize`` and ``wait`` block.

    A mark is a position in the device's queue (a CUDA event). For a library without marks they are None; its spans then
    show that work was enqueued, not how long it took.
    """

    #: The library.
    name: str
    #: Whether it has marks.
    marks: bool

    def in_use(self) -> bool:
        """Whether the library already uses its devices; such libraries come first."""

    def resolve(self, device: str) -> str | None:
        """The full name of a device that can be timed, from ``"gpu"`` or ``"cuda:0"``; None if unknown."""

    def mark(self, device: str) -> Any | None:
        """Set a mark after all work in the current queue of ``device``."""

    def mark_end(self, device: str) -> tuple[bool, Any | None]:
        """Whether the current queue of ``device`` is empty, and a mark at its end."""

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has reached ``mark``."""

    def seconds(self, first: Any, second: Any) -> float:
        """Seconds between two marks that the device has passed."""

    def release(self, device: str, mark: Any) -> None:
        """Return a mark for reuse."""

    def synchronize(self, device: str) -> None:
        """Wait for all work of ``device``."""

    def wait(self, value: Any) -> bool:
        """Wait until ``value`` is computed; False if it is not an array of this library."""

    def memory(self, device: str) -> tuple[int, int | None] | None:
        """Allocated bytes, and their high-water mark; None if unknown."""


#: Clocks beside those of the backends.
extra_clocks: list[DeviceClock] = []


def all_clocks() -> list[DeviceClock]:
    """The clocks of all imported libraries; none is imported for this."""
    return [*extra_clocks, *from_above("device clocks")]


def find_clock(device: str) -> tuple[DeviceClock, str] | None:
    """The first clock that knows ``device``, with the device's full name; None if there is none.

    ``device`` may start with a library, as in ``"cupy:cuda:0"``, which selects that library's queue.
    """
    clocks = sorted(all_clocks(), key=lambda clock: not clock.in_use())
    library, _, rest = device.partition(":")
    own = [clock for clock in clocks if clock.name == library]
    for clock in own or clocks:
        full = clock.resolve((rest or "gpu") if own else device)
        if full is not None:
            return clock, full
    return None


#: Joules since an arbitrary origin, by device: ``"cpu"``, ``"cuda:0"``.
Counters = Mapping[str, Callable[[], float]]


def energy_counters() -> tuple[Counters, str]:
    """The energy counters of this machine that can be read, and a sentence on those that cannot."""
    found: tuple[Counters, str] = from_above("energy counters")
    return found


#: Minimum time for which energy is reported.
MIN_SECONDS = 1.0
#: Seconds between two readings of a trace.
_INTERVAL = 0.1
#: Maximum number of readings in a trace: at least two hours.
_MAX_READINGS = 160_000


class EnergyMeter:
    """Energy of all devices of this machine while a block ran, including other processes.

    ``with EnergyMeter() as meter: ...`` then ``meter.joules``, by device; ``meter.total`` is nan if nothing can be
    read, or the block took less than a second.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        self._counters = energy_counters()[0] if counters is None else counters
        self._before: dict[str, float] = {}
        self._begun = 0.0
        self.seconds = math.nan
        self.joules: dict[str, float] = {}

    def __enter__(self) -> EnergyMeter:
        self._before = {name: read() for name, read in self._counters.items()}
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._begun
        self.joules = {name: read() - self._before[name] for name, read in self._counters.items()}

    @property
    def total(self) -> float:
        """All devices together."""
        return sum(self.joules.values()) if self.joules and self.seconds >= MIN_SECONDS else math.nan


class EnergyTrace:
    """Readings of all counters every 0.1 s, from which the energy of spans of at least a second follows."""

    def __init__(self) -> None:
        self._counters = energy_counters()[0]
        self._times: list[int] = []
        self._joules: list[float] = []
        self._lock = threading.Lock()
        self._stop: SimpleQueue[None] = SimpleQueue()
        if self._counters:
            self._read()
            start_thread(self._watch, "hpfracc-energy")

    def _read(self) -> None:
        joules = sum(read() for read in self._counters.values())
        with self._lock:
            self._times.append(time.perf_counter_ns())
            self._joules.append(joules)
            if len(self._times) > _MAX_READINGS:
                del self._times[: _MAX_READINGS // 2], self._joules[: _MAX_READINGS // 2]

    def _watch(self) -> None:
        while True:
            try:
                self._stop.get(timeout=_INTERVAL)
                return
            except Empty:
                self._read()

    def stop(self) -> None:
        """End the readings."""
        self._stop.put(None)

    def between(self, start: int, end: int) -> float | None:
        """Joules between two times of ``perf_counter_ns``; None below a second, or outside the readings."""
        if end - start < MIN_SECONDS * 1e9:
            return None
        with self._lock:
            times, joules = self._times, self._joules
            if len(times) < 2 or start < times[0] - _INTERVAL * 2e9 or end > times[-1] + _INTERVAL * 2e9:
                return None
            return self._at(end, times, joules) - self._at(start, times, joules)

    def _at(self, moment: int, times: list[int], joules: list[float]) -> float:
        place = min(max(bisect_left(times, moment), 1), len(times) - 1)
        share = (moment - times[place - 1]) / max(1, times[place] - times[place - 1])
        return joules[place - 1] + min(max(share, 0.0), 1.0) * (joules[place] - joules[place - 1])


#: Name of the counter, current bytes, and peak bytes (None if unknown).
Reading = tuple[str, int, int | None]


def read_host_memory() -> Reading | None:
    """The memory of this process: as counted by tracemalloc while it traces, otherwise the resident set, if known."""
    if tracemalloc.is_tracing():
        now, peak = tracemalloc.get_traced_memory()
        return "tracemalloc", now, peak
    process = _process()
    if process is None:
        return None
    now = int(process.memory_info().rss)
    if not sys.platform.startswith("linux"):
        return "resident", now, None
    import resource

    # The kernel keeps the peak from counters that lag a little behind.
    return "resident", now, max(now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


@functools.cache
def _process() -> Any:
    psutil = find_psutil()
    return None if psutil is None else psutil.Process()


after_fork(_process.cache_clear)  # in a forked child it would still be the parent
