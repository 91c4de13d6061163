"""Free memory of a card as its driver counts it, over all processes, before any array library is loaded."""

from __future__ import annotations

from hpfracc.engine.hardware._gpu import start_nvml
from hpfracc.engine.hardware._machine import machine

__all__ = ["driver_free_bytes"]


def driver_free_bytes(device: str) -> int | None:
    """Bytes free on a card such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a card."""
    gpu = machine().gpu(device)
    if gpu is None or not gpu.uuid:
        return None
    try:
        nvml = start_nvml()
        return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).free)
    except Exception:  # a driver fails in its own ways, and not knowing is an answer
        return None
