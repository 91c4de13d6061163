"""Energy: counters of devices, registered by higher layers, and their differences over time.

Profiling does not read the hardware itself. A counter returns joules since an arbitrary origin, and increases. Counters
are updated slowly (NVIDIA's every 100 ms), so the energy of a short call is unknown: below a second it is not reported.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from queue import Empty, SimpleQueue

from hpfracc._shielded import start_thread
from hpfracc.profiling.clocks import Counters, energy_counters

__all__ = ["MIN_SECONDS", "EnergyMeter", "EnergyTrace"]

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

    def __init__(self, counters: Counters | None = None, interval: float = _INTERVAL) -> None:
        self._counters = energy_counters()[0] if counters is None else counters
        self._interval = interval
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
                self._stop.get(timeout=self._interval)
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
            if len(times) < 2 or start < times[0] - self._interval * 2e9 or end > times[-1] + self._interval * 2e9:
                return None
            return self._at(end, times, joules) - self._at(start, times, joules)

    def _at(self, moment: int, times: list[int], joules: list[float]) -> float:
        place = min(max(bisect_left(times, moment), 1), len(times) - 1)
        share = (moment - times[place - 1]) / max(1, times[place] - times[place - 1])
        return joules[place - 1] + min(max(share, 0.0), 1.0) * (joules[place] - joules[place - 1])
