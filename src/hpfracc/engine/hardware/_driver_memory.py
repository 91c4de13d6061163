"""GPU memory as the driver counts it, over all processes, without an array library."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from hpfracc.engine.hardware._machine import machine
from hpfracc.engine.hardware.gpu import start_nvml

__all__ = ["DriverMemory", "driver_free_bytes", "driver_memory"]


@dataclass(frozen=True, slots=True)
class DriverMemory:
    """A GPU's memory in bytes, in total and by process.

    Attributes
    ----------
    total, free, used : int
        As the driver reports.
    processes : tuple of (int, int or None)
        Process ids and bytes (None if unknown). In a container the ids may be those of the host.
    """

    total: int
    free: int
    used: int
    processes: tuple[tuple[int, int | None], ...] = ()

    @property
    def others(self) -> int | None:
        """Known bytes of other processes; None if the driver reports none."""
        known = [size for process, size in self.processes if size is not None and process != os.getpid()]
        return sum(known) if known or not self.processes else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "others": self.others}


def driver_memory(device: str) -> DriverMemory | None:
    """The memory of a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
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
    except Exception:  # a driver may raise anything; the memory is then unknown
        return None


def _size(value: Any) -> int | None:
    """A size, or None for the driver's markers of an unknown one."""
    return int(value) if isinstance(value, int) and 0 <= value < 1 << 60 else None


def driver_free_bytes(device: str) -> int | None:
    """Bytes free on a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
    gpu = machine().gpu(device)
    if gpu is None or not gpu.uuid:
        return None
    try:
        nvml = start_nvml()
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).free)
    except Exception:  # a driver may raise anything; the memory is then unknown
        return None
