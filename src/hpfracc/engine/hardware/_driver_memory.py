"""Memory of a GPU as its driver counts it, over all processes, before any array library is loaded."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from hpfracc.engine.hardware._gpu import start_nvml
from hpfracc.engine.hardware._machine import machine

__all__ = ["DriverMemory", "driver_free_bytes", "driver_memory"]


@dataclass(frozen=True, slots=True)
class DriverMemory:
    """A GPU's memory in bytes, and what each process holds of it.

    Attributes
    ----------
    total, free, used : int
        As the driver says.
    processes : tuple of (int, int or None)
        Number of each process on the GPU and its bytes, None where the driver does not tell; in a container the
        numbers may be those of the machine around it.
    """

    total: int
    free: int
    used: int
    processes: tuple[tuple[int, int | None], ...] = ()

    @property
    def others(self) -> int | None:
        """Bytes of other processes, as far as the driver tells; None if it tells of none."""
        known = [size for process, size in self.processes if size is not None and process != os.getpid()]
        return sum(known) if known or not self.processes else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "others": self.others}


def driver_memory(device: str) -> DriverMemory | None:
    """What the driver says of a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
    gpu = machine().gpu(device)
    if gpu is None or not gpu.uuid:
        return None
    try:
        nvml = start_nvml()
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except Exception:  # some drivers and containers refuse only this
            running = []
        processes = tuple((int(each.pid), _size(each.usedGpuMemory)) for each in running)
        return DriverMemory(int(memory.total), int(memory.free), int(memory.used), processes)
    except Exception:  # a driver fails in its own ways, and not knowing is an answer
        return None


def _size(value: Any) -> int | None:
    """A size, or None for the ways in which the driver says that it does not know."""
    return int(value) if isinstance(value, int) and 0 <= value < 1 << 60 else None


def driver_free_bytes(device: str) -> int | None:
    """Bytes free on a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
    gpu = machine().gpu(device)
    if gpu is None or not gpu.uuid:
        return None
    try:
        nvml = start_nvml()
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).free)
    except Exception:  # a driver fails in its own ways, and not knowing is an answer
        return None
