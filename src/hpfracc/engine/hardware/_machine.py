"""The machine in one description, read once, with the versions of its libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpfracc._optional import package_version
from hpfracc.engine.hardware.cpu import CPU, read_cpu
from hpfracc.engine.hardware.gpu import GPU, read_gpus

__all__ = ["Machine", "library_version", "library_versions", "machine", "reset"]

#: The packages that provide a module, in the order in which they are tried, if names differ.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "pynvml": ("nvidia-ml-py",),
}
#: The libraries of :func:`library_versions`.
_LIBRARIES = ("numpy", "scipy", "numba", "torch", "jax", "jaxlib", "cupy", "pynvml")


def library_version(module: str) -> str | None:
    """Version of the package that provides ``module``, or None if it is not installed."""
    for package in _PACKAGES.get(module, (module,)):
        if (version := package_version(package)) is not None:
            return version
    # A library without metadata (on the path by hand) may be imported already.
    found = getattr(sys.modules.get(module), "__version__", None)
    return found if isinstance(found, str) else None


def library_versions() -> dict[str, str | None]:
    """Version of every backend's library; None if not installed."""
    return {module: library_version(module) for module in _LIBRARIES}


@dataclass(frozen=True, slots=True)
class Machine:
    """A description of a machine.

    Attributes
    ----------
    host : str
        Its network name.
    system : str
        Operating system and release.
    python : str
        Version of the interpreter.
    cpu : CPU
        The processor.
    ram : int or None
        Bytes of memory of the machine; ``engine.memory`` has the limits of this process.
    gpus : tuple of GPU
        GPUs that this process may use, in the order of their device numbers.
    libraries : Mapping[str, str or None]
        Versions by module; None if not installed.
    """

    host: str
    system: str
    python: str
    cpu: CPU
    ram: int | None
    gpus: tuple[GPU, ...]
    libraries: Mapping[str, str | None]

    def gpu(self, device: str) -> GPU | None:
        """The GPU of a device name such as ``"cuda:0"``, or None if unknown."""
        return next((gpu for gpu in self.gpus if gpu.device == device), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "host": self.host,
            "system": self.system,
            "python": self.python,
            "cpu": self.cpu.to_dict(),
            "ram": self.ram,
            "gpus": [gpu.to_dict() for gpu in self.gpus],
            "libraries": dict(self.libraries),
        }


_machine: Machine | None = None


def machine() -> Machine:
    """The machine of this process; read on the first call and cached."""
    global _machine
    if _machine is None:  # a race only reads twice
        host, system = _names()
        _machine = Machine(
            host=host,
            system=system,
            python=".".join(map(str, sys.version_info[:3])),
            cpu=read_cpu(),
            ram=_ram(),
            gpus=read_gpus(),
            libraries=library_versions(),
        )
    return _machine


def reset() -> None:
    """Read again on the next call."""
    global _machine
    _machine = None


def _names() -> tuple[str, str]:
    if hasattr(os, "uname"):
        names = os.uname()
        return names.nodename, f"{names.sysname} {names.release}"
    import platform

    return platform.node(), f"{platform.system()} {platform.release()}"


def _ram() -> int | None:
    try:
        import psutil

        return int(psutil.virtual_memory().total)
    except (ImportError, OSError):
        return None
