"""The host memory that this process may use, and how much of it is free.

Several limits apply at once (the machine's RAM, the control group of the process and all its ancestors, the process's
own ``ulimit``), each with its own usage. The memory that can be allocated is the smallest remainder.
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpfracc.engine.cgroups import Group, find_groups, own_groups_text, read_text

if sys.platform != "win32":
    import resource

__all__ = ["HostMemory", "HostProbe", "MemoryLimit", "resident_bytes", "thread_bytes"]

#: Version 1 of control groups writes "no limit" as the largest whole number of pages that fits 63 bits.
_UNLIMITED = 1 << 60
#: The stack of a thread if ``ulimit -s`` sets none, and the first arena of its heap.
_USUAL_STACK, _ARENA = 8 << 20, 1 << 20


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One limit on this process's memory: its name, its size and its usage, in bytes."""

    name: str
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes remaining, at least 0."""
        return max(0, self.limit - self.used)

    def to_dict(self) -> dict[str, Any]:
        """The limit as plain data."""
        return {"name": self.name, "limit": self.limit, "used": self.used, "free": self.free}


@dataclass(frozen=True, slots=True)
class HostMemory:
    """One reading of the host's memory; the bounds include at least the machine's RAM."""

    bounds: tuple[MemoryLimit, ...]

    @property
    def limit(self) -> int:
        """The smallest limit, in bytes."""
        return min(bound.limit for bound in self.bounds)

    @property
    def free(self) -> int:
        """Bytes that can still be allocated: the smallest remainder of all limits."""
        return min(bound.free for bound in self.bounds)

    @property
    def usage(self) -> float:
        """The used fraction of the fullest limit, from 0 to 1."""
        return max(min(1.0, bound.used / bound.limit) if bound.limit else 1.0 for bound in self.bounds)

    @property
    def tightest(self) -> MemoryLimit:
        """The limit that would be reached first."""
        return min(self.bounds, key=lambda bound: bound.free)

    def to_dict(self) -> dict[str, Any]:
        """The reading as plain data."""
        return {
            "limit": self.limit,
            "free": self.free,
            "tightest": self.tightest.name,
            "bounds": [bound.to_dict() for bound in self.bounds],
        }


class HostProbe:
    """Reads the host's limits; caches the process's control groups as long as they do not change.

    Parameters
    ----------
    root : Path
        Folder that contains ``/proc`` and ``/sys``; tests use their own.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._groups: tuple[str, tuple[Group, ...]] | None = None

    def read(self) -> HostMemory:
        """A fresh reading."""
        bounds = [_ram(self._root)]
        bounds += [bound for group in self._memory_groups() if (bound := _group_bound(group)) is not None]
        bounds += _process_bounds(self._root)
        return HostMemory(tuple(bounds))

    def _memory_groups(self) -> tuple[Group, ...]:
        text = own_groups_text(self._root)
        if self._groups is None or self._groups[0] != text:
            self._groups = (text, find_groups("memory", self._root))
        return self._groups[1]


def _ram(root: Path) -> MemoryLimit:
    text = read_text(root / "proc/meminfo")
    total, available = _field(text, "MemTotal:", 1024), _field(text, "MemAvailable:", 1024)
    if total is None or available is None:  # not Linux
        import psutil

        memory = psutil.virtual_memory()
        total, available = int(memory.total), int(memory.available)
    return MemoryLimit("RAM", total, total - available)


def _group_bound(group: Group) -> MemoryLimit | None:
    """The limit of one control group, or None if it sets none."""
    if group.version == 2:
        # Above memory.high nothing fails, but the kernel slows every allocation down to a halt.
        limits = [_number(group.read("memory.max")), _number(group.read("memory.high"))]
        use, idle_cache = "memory.current", "inactive_file"
    else:
        # The second is the limit of the tightest ancestor, including those outside this mount.
        tightest = _field(group.read("memory.stat"), "hierarchical_memory_limit")
        limits = [_number(group.read("memory.limit_in_bytes")), tightest]
        use, idle_cache = "memory.usage_in_bytes", "total_inactive_file"
    known = [limit for limit in limits if limit is not None and limit < _UNLIMITED]
    if not known:
        return None
    # Inactive file pages count as used, but are reclaimed when memory is needed.
    used = (_number(group.read(use)) or 0) - (_field(group.read("memory.stat"), idle_cache) or 0)
    return MemoryLimit(f"cgroup {group.folder}", min(known), max(0, used))


def _own_limits() -> dict[str, int]:
    """The process's own ``ulimit``, where one is set: of its address space, and of its private writable memory."""
    if sys.platform == "win32":
        return {}
    kinds = {"RLIMIT_AS": resource.RLIMIT_AS, "RLIMIT_DATA": resource.RLIMIT_DATA}
    found = {name: resource.getrlimit(kind)[0] for name, kind in kinds.items()}
    return {name: limit for name, limit in found.items() if 0 <= limit < _UNLIMITED}  # RLIM_INFINITY may be -1


def _process_bounds(root: Path) -> list[MemoryLimit]:
    limits = _own_limits()
    if not limits:
        return []
    text = read_text(root / "proc/self/status")
    used = {"RLIMIT_AS": _field(text, "VmSize:", 1024), "RLIMIT_DATA": _field(text, "VmData:", 1024)}
    if None in used.values():  # not Linux
        import psutil

        used = dict.fromkeys(used, int(psutil.Process().memory_info().vms))
    return [MemoryLimit(name, limit, used[name] or 0) for name, limit in limits.items()]


def thread_bytes() -> int:
    """The part of the process's ``ulimit`` that a new thread takes: its whole stack, of which it touches a few pages.

    0 if no such limit is set: untouched memory is not taken from the machine.
    """
    if sys.platform == "win32" or not _own_limits():
        return 0
    stack = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
    return (stack if 0 < stack < _UNLIMITED else _USUAL_STACK) + _ARENA


def resident_bytes(root: Path = Path("/")) -> tuple[int, int] | None:
    """Resident bytes of this process, and their high-water mark; None if the system does not report them."""
    text = read_text(root / "proc/self/status")
    now, most = _field(text, "VmRSS:", 1024), _field(text, "VmHWM:", 1024)
    return None if now is None or most is None else (now, most)


def _number(text: str | None) -> int | None:
    """The single number in a file; None for ``max``, a missing file and anything else."""
    return int(text) if text is not None and text.isdigit() else None


def _field(text: str | None, name: str, unit: int = 1) -> int | None:
    """The number after ``name`` at the start of a line, or None."""
    match = re.search(rf"^{name}\s+(\d+)", text or "", re.MULTILINE)
    return None if match is None else int(match[1]) * unit
