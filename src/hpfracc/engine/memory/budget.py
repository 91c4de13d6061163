"""The memory budget of a call, and readings of free memory that are cheap enough for every call.

``allowed = share * free``: the refusal of candidates, the monitor and the chunk sizes all use this module, so that they
cannot disagree. This floor knows no backend: a backend registers how it counts its free bytes.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from hpfracc import _reading
from hpfracc._interrupts import Guarded, after_fork
from hpfracc.engine.memory.host import HostProbe
from hpfracc.errors import InvalidInputError

#: Maps a device's name to the bytes that one library could allocate there now; None if unknown.
FreeBytes = Callable[[str], int | None]

#: The name of the host's memory.
HOST = "cpu"

#: Seconds for which a reading is valid. A host reading takes 0.1 to 0.3 ms, i.e. at most 0.3 % of the time.
TIME_TO_LIVE = 0.1

#: Bytes from which an amount is none.
_MOST_BYTES = 2**63
_UNITS = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1024), ("b", 1000), ("ib", 1024))
}

_log = logging.getLogger("hpfracc.memory")


def fits(need: float, free: int | None, share: float) -> bool:
    """Whether ``need`` bytes are allowed; always true if free memory is unknown."""
    return free is None or need <= share * free


_probe = HostProbe()


class FreeBytesReading:
    """Free bytes of a device for one library (inf if unknown), valid until ``until``; shared by all who ask."""

    __slots__ = ("free", "until")

    def __init__(self) -> None:
        self.free = math.inf
        self.until = -math.inf


class MemoryGuard:
    """Whether the memory of a call is free: ``guard()``, asked before every call of a plan.

    While ``clock() < reading.until`` the answer is ``enough <= reading.free``. The engine's settled calls compare these
    themselves: beside the dispatch of a GPU library a Python function takes 4 us, 4 % of a row of 100,000 points
    (benchmarks/operators.py).
    """

    __slots__ = ("_refresh", "clock", "enough", "reading")

    def __init__(
        self, enough: float, reading: FreeBytesReading, clock: Callable[[], float], refresh: Callable[[], Any]
    ) -> None:
        #: Bytes that have to be free.
        self.enough = enough
        self.reading = reading
        self.clock = clock
        self._refresh = refresh

    def __call__(self) -> bool:
        """Whether enough bytes are free, from a recent reading."""
        if self.clock() >= self.reading.until:
            self._refresh()
        return self.enough <= self.reading.free


class Budget(Guarded):
    """Free memory of the host and of devices, read through registered functions and cached briefly.

    Parameters
    ----------
    host : callable
        Reads the host's free bytes.
    time_to_live : float
        Seconds for which a reading is valid.
    clock : callable
        A monotonic clock, in seconds.
    """

    def __init__(
        self,
        host: FreeBytes = lambda device: _probe.read().free,
        time_to_live: float = TIME_TO_LIVE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._host = host
        self._time_to_live = time_to_live
        self._clock = clock
        self._readers: dict[str, FreeBytes] = {}
        self._readings: dict[tuple[str, str | None], FreeBytesReading] = {}
        self._caps: dict[str, int] = {}

    def register(self, owner: str, reader: FreeBytes | None) -> None:
        """Register how ``owner`` (a backend) reads what it could allocate on a device; None removes its reader."""
        with self._lock:
            others = {name: known for name, known in self._readers.items() if name != owner}
            self._readers = others if reader is None else {**others, owner: reader}  # so that lookups need no lock
        self.invalidate()

    def free(self, device: str = HOST, owner: str | None = None) -> int | None:
        """Free bytes on ``device``, at most :data:`TIME_TO_LIVE` old.

        Parameters
        ----------
        device : str
            ``"cpu"`` for the host, or a device's name such as ``"cuda:0"``.
        owner : str, optional
            The library that will allocate: unused memory in its own pool counts as free. Without it, the smallest value
            that any registered reader reports.

        Returns
        -------
        int or None
            None if nothing can be read.
        """
        reading = self._reading(device, owner)
        if self._clock() < reading.until:
            return None if reading.free == math.inf else int(reading.free)
        return self.read(device, owner)

    def read(self, device: str = HOST, owner: str | None = None) -> int | None:
        """Like :meth:`free`, without the cache."""
        if device == HOST:
            readers = [self._host]
        elif owner is not None:
            readers = [reader for name, reader in self._readers.items() if name == owner]
        else:
            readers = list(self._readers.values())
        known = [value for reader in readers if (value := _ask(reader, device)) is not None]
        value = min(known) if known else None
        cap = self._caps.get(device)
        if cap is not None:
            value = cap if value is None else min(value, cap)
        reading = self._reading(device, owner)
        reading.free = math.inf if value is None else value
        reading.until = self._clock() + self._time_to_live
        return value

    def _reading(self, device: str, owner: str | None) -> FreeBytesReading:
        return self._readings.get((device, owner)) or self._readings.setdefault((device, owner), FreeBytesReading())

    def fits(self, need: float, device: str, share: float, owner: str | None = None) -> bool:
        """Whether ``need`` bytes are within ``share`` of what is free on ``device``."""
        return fits(need, self.free(device, owner), share)

    def guard(self, need: float, device: str, share: float, owner: str | None = None) -> MemoryGuard:
        """Asks at any later time whether ``need`` bytes are within ``share`` of what is free on ``device``."""
        enough = need / share if share > 0.0 else math.inf
        return MemoryGuard(enough, self._reading(device, owner), self._clock, partial(self.read, device, owner))

    def allowed(self, device: str, share: float, owner: str | None = None) -> int | None:
        """Bytes one call may take on ``device`` now; None if unknown."""
        free = self.free(device, owner)
        return None if free is None else int(share * free)

    def cap(self, device: str, size: int | None) -> int | None:
        """Limit calls to ``size`` bytes on ``device``, however much is free; returns the previous cap."""
        with self._lock:
            before = self._caps.get(device)
            others = {name: cap for name, cap in self._caps.items() if name != device}
            self._caps = others if size is None else {**others, device: size}
        self.invalidate(device)
        return before

    def caps(self) -> dict[str, int]:
        """The current caps."""
        return dict(self._caps)

    def invalidate(self, device: str | None = None) -> None:
        """Drop the readings of ``device`` (or of all devices), as after a large allocation or a clean-up."""
        for (name, _), reading in list(self._readings.items()):
            if device is None or name == device:
                reading.until = -math.inf


def _ask(reader: FreeBytes, device: str) -> int | None:
    """The reading of ``reader``, or None if it fails: a failing reader must not break the user's call."""
    try:
        value = reader(device)
    except Exception:
        _log.debug("free memory of %s could not be read", device, exc_info=True)
        return None
    return None if value is None else max(0, int(value))


def parse_bytes(name: str, value: Any) -> int:
    """``value`` in bytes: a number of at least 1, or text such as ``"2GiB"``, ``"500 MB"``."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", value.lower())
        if found is not None and found[2] in _UNITS:
            value = float(found[1]) * _UNITS[found[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < _MOST_BYTES:
        raise InvalidInputError(
            f"{name}={_reading.shown(value)} is not an amount of memory; use bytes, or text such as '2GiB'"
        )
    return int(value)


_budget = Budget()


def get_budget() -> Budget:
    """The process's budget, with which backends register."""
    return _budget


after_fork(_budget.invalidate)
