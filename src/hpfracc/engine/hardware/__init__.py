"""The machine: processor, memory, GPUs, library versions, and a fingerprint for each arm.

No array library is imported for this, and nothing here raises because a machine lacks something. The names below are
loaded on first access (PEP 562), so that importing this package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpfracc.engine.hardware._driver_memory import DriverMemory, driver_free_bytes, driver_memory
    from hpfracc.engine.hardware._fingerprint import fingerprint, source_hash
    from hpfracc.engine.hardware._machine import Machine, library_version, library_versions, machine, reset
    from hpfracc.engine.hardware.cpu import CPU, read_cpu
    from hpfracc.engine.hardware.energy import read_energy_counters
    from hpfracc.engine.hardware.gpu import GPU, read_gpus

__all__ = [
    "CPU",
    "GPU",
    "DriverMemory",
    "Machine",
    "driver_free_bytes",
    "driver_memory",
    "fingerprint",
    "library_version",
    "library_versions",
    "machine",
    "read_cpu",
    "read_energy_counters",
    "read_gpus",
    "reset",
    "source_hash",
]

_HOME = {
    "CPU": "cpu",
    "GPU": "gpu",
    "Machine": "_machine",
    "DriverMemory": "_driver_memory",
    "driver_free_bytes": "_driver_memory",
    "driver_memory": "_driver_memory",
    "fingerprint": "_fingerprint",
    "library_version": "_machine",
    "library_versions": "_machine",
    "machine": "_machine",
    "read_cpu": "cpu",
    "read_energy_counters": "energy",
    "read_gpus": "gpu",
    "reset": "_machine",
    "source_hash": "_fingerprint",
}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
