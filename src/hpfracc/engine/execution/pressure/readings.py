"""Readings of memory, and the corresponding level of pressure."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from hpfracc import _reading
from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.memory.host import HostProbe, resident_bytes
from hpfracc.errors import InvalidInputError

__all__ = ["Levels", "Pressure", "Reading", "read_memory", "watched_device"]

#: Fractions of memory in use at which moderate, high and critical start, and how much lower each is left.
MARKS, BELOW = (0.60, 0.75, 0.90), 0.05

_probe = HostProbe()


@dataclass(frozen=True, slots=True)
class Reading:
    """Total bytes, used by all processes, free for this one and held by it; and the fraction in use."""

    total: int
    used: int
    free: int
    allocated: int
    usage: float


def watched_device(device_id: int | str) -> str:
    """The device of that number or name; the host if there is no such GPU."""
    if isinstance(device_id, bool) or not isinstance(device_id, int | str):
        raise InvalidInputError(f"device_id={device_id!r} is not a device; use a number, or a name such as 'cuda:0'")
    if isinstance(device_id, int) and device_id < 0:
        raise InvalidInputError(f"device_id={device_id} is negative; use the number of a GPU, from 0")
    name = f"cuda:{device_id}" if isinstance(device_id, int) else device_id
    return name if name != HOST and hardware.machine().gpu(name) is not None else HOST


def read_memory(device: str) -> Reading:
    """Read a device's memory now."""
    if device == HOST:
        host = _probe.read()
        resident = resident_bytes()
        held = 0 if resident is None else resident[0]
        return Reading(host.limit, host.limit - min(host.limit, host.free), host.free, held, host.usage)
    driver = hardware.driver_memory(device)
    gpu = hardware.machine().gpu(device)
    total = driver.total if driver is not None else (gpu.memory if gpu is not None else None) or 0
    loaded = [name for name in ("torch", "jax", "cupy") if registry.is_loaded(name)]
    free = get_budget().read(device)
    free = 0 if free is None else free
    held = sum(_held(name, device) for name in loaded)
    usage = 1.0 - free / total if total else 0.0
    return Reading(total, max(0, total - free), free, held, min(1.0, max(0.0, usage)))


def _held(name: str, device: str) -> int:
    """Bytes of the library's arrays on the device; of its whole pool if it does not count them."""
    adapter = registry.adapter(name)
    marks = adapter.peak_bytes(device)
    return adapter.reserved_bytes(device) if marks is None else marks[0]


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
        order = list(Pressure)
        rank = self.level.rank
        while rank < 3 and usage >= self.marks[rank]:
            rank += 1
        while rank > 0 and usage < self.marks[rank - 1] - self.below:
            rank -= 1
        self.level = order[rank]
        return self.level
