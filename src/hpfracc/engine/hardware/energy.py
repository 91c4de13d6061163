"""Counters of energy: of GPUs through NVML, of the processor through the kernel's RAPL files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpfracc.engine.cgroups import read_text
from hpfracc.engine.hardware import machine
from hpfracc.engine.hardware.gpu import start_nvml


class _Rapl:
    """The sum over the packages of a processor. Each file counts microjoules and wraps around at its range."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders = folders
        self._ranges = [int(read_text(folder / "max_energy_range_uj") or 0) for folder in folders]
        self._last = [self._value(folder) for folder in folders]
        self._total = 0

    def _value(self, folder: Path) -> int:
        text = read_text(folder / "energy_uj")
        if text is None:
            raise OSError(f"{folder}/energy_uj cannot be read")
        return int(text)

    def __call__(self) -> float:
        """Joules since creation."""
        for place, folder in enumerate(self._folders):
            now = self._value(folder)
            passed = now - self._last[place]
            self._total += passed if passed >= 0 else passed + self._ranges[place]
            self._last[place] = now
        return 1e-6 * self._total


def read_energy_counters(root: Path = Path("/")) -> tuple[dict[str, Callable[[], float]], str]:
    """A function that returns the joules of each device, and a sentence on unreadable counters. Never raises."""
    found: dict[str, Callable[[], float]] = {}
    missing = []
    packages = sorted(
        folder
        for folder in (root / "sys/class/powercap").glob("intel-rapl:*")
        if re.fullmatch(r"[^:]+:\d+", folder.name)
    )
    try:
        if packages:
            found["cpu"] = _Rapl(packages)
        else:
            missing.append("the processor has no RAPL files in /sys/class/powercap")
    except (OSError, ValueError):
        missing.append("the RAPL files of the processor can be read by root only")
    try:
        gpus = machine().gpus
        if not gpus:
            missing.append("there is no GPU")
        for gpu in gpus:
            found[gpu.device] = _nvml_counter(gpu.uuid)
    except Exception as error:  # no package, an old driver, or a GPU that does not count
        missing.append(f"NVML reports no energy ({type(error).__name__}: {error}); install nvidia-ml-py")
    return found, "; ".join(missing)


def _nvml_counter(uuid: str) -> Callable[[], float]:
    nvml: Any = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    nvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # raises if it is not counted

    def read() -> float:
        return 1e-3 * float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    return read
