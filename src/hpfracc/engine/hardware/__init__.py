"""The machine: processor, memory, GPUs, library versions, and a fingerprint for each arm.

A fingerprint is a hash of everything that the speed of an arm depends on; times are valid only if it matches. No array
library is imported for this, and nothing here raises because a machine lacks something.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from hpfracc._optional import machine_memory, package_version
from hpfracc.engine import workers
from hpfracc.engine.cgroups import find_groups, read_text
from hpfracc.engine.hardware.gpu import GPU, DriverMemory, read_driver_memory, read_gpus

__all__ = [
    "CPU", "GPU", "DriverMemory", "Machine", "driver_free_bytes", "driver_memory", "fingerprint", "library_version",
    "library_versions", "machine", "read_cpu", "read_gpus", "reset", "source_hash",
]  # fmt: skip

#: The packages that provide a module, in the order in which they are tried, if names differ.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "pynvml": ("nvidia-ml-py",),
    "sklearn": ("scikit-learn",),
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
class CPU:
    """A processor, as this process sees it.

    Attributes
    ----------
    model : str
        The vendor's name.
    family : str
        Vendor, family and model numbers: virtual machines often hide the name but not these.
    architecture : str
        Instruction set, such as ``"x86_64"``.
    logical : int
        Hardware threads of the machine.
    physical : int or None
        Cores of the machine; None if unknown.
    affinity : tuple of int
        Hardware threads this process may run on.
    allotment : str
        Numbers of threads, cores, packages and kinds of core in the affinity. Equal for two processes with two cores
        each, but not for two threads of one core.
    quota : float or None
        CPU time limit of the tightest control group, in processors; None without a limit.
    """

    model: str
    family: str
    architecture: str
    logical: int
    physical: int | None
    affinity: tuple[int, ...]
    allotment: str
    quota: float | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def read_cpu(root: Path = Path("/")) -> CPU:
    """Read the processor's description; ``root`` is for tests."""
    logical, affinity = os.cpu_count() or 1, workers.affinity()
    facts = _cpuinfo(read_text(root / "proc/cpuinfo") or "")
    model = facts.get("model name") or facts.get("Model") or facts.get("cpu model") or _model_elsewhere()
    numbers = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part", "CPU variant")
    cores = {core for number in range(logical) if (core := _core(root, number)) is not None}
    return CPU(
        model=model,
        family=" ".join(facts[name] for name in numbers if name in facts),
        architecture=os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", ""),
        logical=logical,
        physical=len(cores) or None,
        affinity=affinity,
        allotment=_allotment(root, affinity),
        quota=_quota(root),
    )


def _cpuinfo(text: str) -> dict[str, str]:
    """The entries of the first processor, and those that some systems list after the last one."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        name, found, value = line.partition(":")
        if found:
            facts.setdefault(name.strip(), value.strip())
    return facts


def _model_elsewhere() -> str:
    if sys.platform == "darwin":
        import subprocess

        try:
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            pass
    import platform

    return platform.processor() or platform.machine() or "unknown"


def _core(root: Path, number: int) -> tuple[str, str] | None:
    """(package, core) of a hardware thread, or None if unknown."""
    topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
    core = read_text(topology / "core_id")
    return None if core is None else (read_text(topology / "physical_package_id") or "0", core)


def _allotment(root: Path, affinity: tuple[int, ...]) -> str:
    cores = {core for number in affinity if (core := _core(root, number)) is not None}
    kinds = Counter(_kind(root, number) for number in affinity)
    words = [f"{len(affinity)} threads"]
    if cores:
        words += [f"{len(cores)} cores", f"{len({package for package, _ in cores})} packages"]
    if len(kinds) > 1:  # large and small cores together
        words += [f"{count} of kind {kind}" for kind, count in sorted(kinds.items())]
    return ", ".join(words)


def _kind(root: Path, number: int) -> str:
    """The kind of core of a hardware thread, on processors with several kinds."""
    return read_text(root / f"sys/devices/system/cpu/cpu{number}/cpu_capacity") or "only"


def _quota(root: Path) -> float | None:
    shares = []
    for group in find_groups("cpu", root):
        if group.version == 2:
            limit, period = [*(group.read("cpu.max") or "").split(), "", ""][:2]
        else:
            limit, period = group.read("cpu.cfs_quota_us") or "", group.read("cpu.cfs_period_us") or ""
        if limit.isdigit() and period.isdigit() and int(period) > 0:  # "max" and -1 are no limit
            shares.append(int(limit) / int(period))
    return min(shares, default=None)


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
    ram : int
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
    ram: int
    gpus: tuple[GPU, ...]
    libraries: Mapping[str, str | None]

    def gpu(self, device: str) -> GPU | None:
        """The GPU of a device name such as ``"cuda:0"``, or None if unknown."""
        return next((gpu for gpu in self.gpus if gpu.device == device), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


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
            ram=machine_memory(),
            gpus=read_gpus(),
            libraries=library_versions(),
        )
    return _machine


def reset() -> None:
    """Read again on the next call."""
    global _machine
    _machine = None


def _names() -> tuple[str, str]:
    import platform

    return platform.node(), f"{platform.system()} {platform.release()}"


def driver_memory(device: str) -> DriverMemory | None:
    """The memory of a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
    gpu = machine().gpu(device)
    return None if gpu is None else read_driver_memory(gpu)


def driver_free_bytes(device: str) -> int | None:
    """Bytes free on a GPU such as ``"cuda:0"``; None without nvidia-ml-py, a driver, or such a GPU."""
    memory = driver_memory(device)
    return None if memory is None else memory.free


def fingerprint(
    backend: str, device: str, version: str, threads: int, source_hash: str, on: Machine | None = None
) -> str:
    """Sixteen hexadecimal digits that change if and only if an arm must be measured again.

    Upgrading a library invalidates only its own arms; a new driver only those on the GPU.

    Parameters
    ----------
    backend : str
        Name of the backend.
    device : str
        ``"cpu"``, or a GPU's name such as ``"cuda:0"``.
    version : str
        Version of the backend's library.
    threads : int
        Number of threads of the arm.
    source_hash : str
        Hash of the kernel's source; see :func:`source_hash`.
    on : Machine, optional
        The machine; by default this one.
    """
    where = on or machine()
    hardware = _processor(where) if device == "cpu" else _gpu(where, device)
    return _digest(json.dumps([backend, hardware, version, threads, source_hash]).encode())


def source_hash(source: bytes | Callable[..., Any]) -> str:
    """Sixteen hexadecimal digits for a kernel's source.

    Parameters
    ----------
    source : bytes or callable
        The source; or a function, whose source is read, or its bytecode if there is none (interactive input).
    """
    if isinstance(source, bytes):
        return _digest(source)
    import inspect

    try:
        return _digest(inspect.getsource(source).encode())
    except (OSError, TypeError):
        code = getattr(source, "__code__", None)
        name = getattr(source, "__qualname__", type(source).__qualname__)
        return _digest(repr(_shape_of(code) if code is not None else name).encode())


def _processor(where: Machine) -> list[Any]:
    cpu = where.cpu
    return [cpu.model, cpu.family, cpu.architecture, cpu.allotment, cpu.quota]


def _gpu(where: Machine, device: str) -> list[Any]:
    gpu = where.gpu(device)
    if gpu is None:
        return [device, "unknown"]
    names = [other.name for other in where.gpus]
    if len(set(names)) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        # CUDA then numbers different models by speed, which only CUDA knows: the number and all names identify one.
        return [device, sorted(names), gpu.driver]
    return [gpu.name, gpu.driver]


def _shape_of(code: CodeType) -> list[Any]:
    """The code of a function without file names and line numbers, which change when it does not."""
    constants = [_shape_of(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.blake2b(data, digest_size=8).hexdigest()
