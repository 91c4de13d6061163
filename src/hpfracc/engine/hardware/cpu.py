"""The processor, and the part of it that this process may use."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpfracc.engine.cgroups import find_groups, read_text


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


def read_cpu(root: Path = Path("/"), affinity: tuple[int, ...] | None = None) -> CPU:
    """Read the processor's description; ``root`` and ``affinity`` are for tests."""
    logical = os.cpu_count() or 1
    if affinity is None:
        affinity = _affinity(logical)
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


def _affinity(logical: int) -> tuple[int, ...]:
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return tuple(range(logical))


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
