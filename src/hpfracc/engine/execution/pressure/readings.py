"""One reading of a memory: its size, what everyone uses of it, and what this process holds."""

from __future__ import annotations

from dataclasses import dataclass

from hpfracc.engine import hardware
from hpfracc.engine.backends import registry
from hpfracc.engine.memory.budget import HOST, get_budget
from hpfracc.engine.memory.host import HostProbe, resident_bytes
from hpfracc.errors import InvalidInputError

__all__ = ["Reading", "read_memory", "watched_device"]

_probe = HostProbe()


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes in all, used by everyone, free for this process, held by it; and the share in use, from 0 to 1."""

    total: int
    used: int
    free: int
    allocated: int
    usage: float


def watched_device(device_id: int | str) -> str:
    """The device of that number or name; the host where there is no such GPU."""
    if isinstance(device_id, bool) or not isinstance(device_id, int | str):
        raise InvalidInputError(f"device_id={device_id!r} is no device; use a number, or a name such as 'cuda:0'")
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
    """Bytes of the library's arrays on the device; of its whole pool where it does not tell those apart."""
    adapter = registry.adapter(name)
    marks = adapter.peak_bytes(device)
    return adapter.reserved_bytes(device) if marks is None else marks[0]
